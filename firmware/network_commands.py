"""The network function's control queue: which frames its driver wants, and in which queues.

Spec: Virtio 1.2, 5.1.6.5. A command is checked completely before anything changes.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace

from firmware.device import Filter, NetworkHardware, Request, Steering
from hdl.abi.virtio_net import (
    CONTROL_HEADER,
    HASH_KEY_BYTES,
    MAC_BYTES,
    RSS_HEAD,
    RSS_TABLE,
    RSS_TAIL,
    ControlAck,
    HashType,
    MacCommand,
    MqCommand,
    NetClass,
    RxCommand,
)
from hdl.abi.virtio_pci import NetFeature
from hdl.config import NET_ADDRESSES

__all__ = ["SYMMETRIC_KEY", "NetworkCommands"]

#: Command of class RX -> the mode that it turns on or off, and the feature that it needs.
_RX = {
    RxCommand.PROMISC: ("promiscuous", NetFeature.CTRL_RX),
    RxCommand.ALLMULTI: ("all_multicast", NetFeature.CTRL_RX),
    RxCommand.ALLUNI: ("all_unicast", NetFeature.CTRL_RX_EXTRA),
    RxCommand.NOMULTI: ("no_multicast", NetFeature.CTRL_RX_EXTRA),
    RxCommand.NOUNI: ("no_unicast", NetFeature.CTRL_RX_EXTRA),
    RxCommand.NOBCAST: ("no_broadcast", NetFeature.CTRL_RX_EXTRA),
}
#: The key while the driver has not set one. As it repeats itself every 16 bits, both directions of
#: a flow have the same hash, and come to the same pair.
SYMMETRIC_KEY = b"\x6d\x5a" * (HASH_KEY_BYTES // 2)
#: Bit of the first byte of an address of a group.
_GROUP = 1


class RefusedError(Exception):
    """A command is answered with VIRTIO_NET_ERR; the text says why."""


class NetworkCommands:
    """Serves the control requests of the network function, and its device resets.

    ``served`` counts requests, ``refusal`` says why the last one was refused, if it was, and
    ``resets`` counts the device resets that were seen to. An address table with more entries than
    the card has is not refused: the card then lets all frames of that kind pass, and the driver
    drops what it does not want (5.1.6.5.1). Errors: HardwareError.
    """

    def __init__(self, hardware: NetworkHardware, pairs: int):
        self._hardware, self._pairs = hardware, pairs
        self.served, self.resets, self.refusal = 0, 0, ""
        #: What the driver has asked for, as far as it is known, and modes that are on because the
        #: table of addresses is too small.
        self._wanted: Filter | None = None
        self._spilled: frozenset[str] = frozenset()

    async def step(self) -> bool:
        """Sees to a device reset or to one request; whether there was one."""
        state = await self._hardware.state()
        request = await self._hardware.request()
        if state.waits:
            if request is not None:
                await self._hardware.respond(b"")  # its driver has gone
            await self._forget()
            await self._hardware.reset_done()
            self.resets += 1
            return True
        if request is None:
            return False
        await self._hardware.respond(bytes([await self.serve(request, state.features)]))
        self.served += 1
        return True

    async def _forget(self) -> None:
        """Sets what holds after a reset: all frames go to one pair."""
        self._wanted, self._spilled = Filter(), frozenset()
        await self._hardware.set_filter(self._wanted)
        await self._hardware.set_steering(Steering())
        await self._hardware.set_addresses([])

    async def serve(self, request: Request, features: int) -> ControlAck:
        """Carries a request out; the answer to it."""
        try:
            await self._serve(request, features)
        except RefusedError as refused:
            self.refusal = str(refused)
            return ControlAck.ERR
        self.refusal = ""
        return ControlAck.OK

    async def _serve(self, request: Request, features: int) -> None:
        if len(request.data) < CONTROL_HEADER.size:
            raise RefusedError(f"A request of {request.length} bytes")
        head = CONTROL_HEADER.unpack(request.data[: CONTROL_HEADER.size])
        known: dict[tuple[int, int], tuple[NetFeature, Callable[..., Awaitable[None]]]] = {
            (NetClass.MAC, MacCommand.TABLE_SET): (NetFeature.CTRL_RX, self._set_table),
            (NetClass.MAC, MacCommand.ADDR_SET): (NetFeature.CTRL_MAC_ADDR, self._set_mac),
            (NetClass.MQ, MqCommand.VQ_PAIRS_SET): (NetFeature.MQ, self._set_pairs),
            (NetClass.MQ, MqCommand.RSS_CONFIG): (NetFeature.RSS, self._set_spreading),
        }
        known |= {(NetClass.RX, command): (_RX[command][1], self._set_mode) for command in _RX}
        if (head.class_, head.command) not in known:
            raise RefusedError(f"No command {head.class_}.{head.command}")
        feature, handler = known[head.class_, head.command]
        if not features & feature.mask:
            raise RefusedError(f"{feature.name} is not negotiated")
        if self._wanted is None:  # a firmware before this one has set it
            self._wanted = await self._hardware.filter()
        await handler(request, head.command)

    @staticmethod
    def _body(request: Request, size: int) -> bytes:
        """The bytes behind the header, which must be so many."""
        if request.length != CONTROL_HEADER.size + size:
            raise RefusedError(f"{request.length - CONTROL_HEADER.size} bytes, not {size}")
        return request.data[CONTROL_HEADER.size :]

    async def _set(self, wanted: Filter) -> None:
        self._wanted = wanted
        modes = wanted.modes | self._spilled
        await self._hardware.set_filter(replace(wanted, modes=modes))

    async def _set_mode(self, request: Request, command: int) -> None:
        (on,) = self._body(request, 1)
        if on > 1:
            raise RefusedError(f"A mode is on or off, not {on}")
        assert self._wanted is not None
        mode = {_RX[RxCommand(command)][0]}
        modes = self._wanted.modes | mode if on else self._wanted.modes - mode
        await self._set(replace(self._wanted, modes=modes))

    async def _set_mac(self, request: Request, _: int) -> None:
        mac = self._body(request, MAC_BYTES)
        if mac[0] & _GROUP or not any(mac):
            raise RefusedError(f"{mac.hex(':')} is the address of no station")
        assert self._wanted is not None
        await self._set(replace(self._wanted, mac=mac))

    async def _set_pairs(self, request: Request, _: int) -> None:
        pairs = int.from_bytes(self._body(request, 2), "little")
        self._check_pairs("Pairs", pairs)
        table = tuple(n % pairs for n in range(RSS_TABLE))
        await self._hardware.set_steering(Steering(sum(HashType), SYMMETRIC_KEY, table))

    def _check_pairs(self, what: str, pairs: int) -> None:
        if not 1 <= pairs <= self._pairs:
            raise RefusedError(f"{what} must be 1 to {self._pairs}, not {pairs}")

    async def _set_spreading(self, request: Request, _: int) -> None:
        """How the driver wants frames to be spread (5.1.6.5.7)."""
        body = request.data[CONTROL_HEADER.size :]
        if len(body) < RSS_HEAD.size:
            raise RefusedError(f"{len(body)} bytes, not {RSS_HEAD.size} and a table")
        head = RSS_HEAD.unpack(body[: RSS_HEAD.size])
        entries = head.indirection_table_mask + 1
        if entries > RSS_TABLE or entries & (entries - 1):
            raise RefusedError(f"Entries must be a power of two up to {RSS_TABLE}, not {entries}")
        end = RSS_HEAD.size + 2 * entries
        if len(body) < end + RSS_TAIL.size:
            raise RefusedError(f"{len(body)} bytes, not {end + RSS_TAIL.size} and a key")
        tail = RSS_TAIL.unpack(body[end : end + RSS_TAIL.size])
        whole = end + RSS_TAIL.size + tail.hash_key_length
        if tail.hash_key_length > HASH_KEY_BYTES or request.length != CONTROL_HEADER.size + whole:
            raise RefusedError(f"A key of {tail.hash_key_length} bytes in {len(body)}")
        if head.hash_types & ~sum(HashType):
            raise RefusedError(f"Hash types {head.hash_types:#x} are not all there")
        table = struct.unpack(f"<{entries}H", body[RSS_HEAD.size : end])
        for pair in (head.unclassified_queue, *table):
            self._check_pairs("Pairs of a frame", pair + 1)
        self._check_pairs("Pairs that send", tail.max_tx_vq)
        key = body[end + RSS_TAIL.size : whole].ljust(HASH_KEY_BYTES, b"\0")
        await self._hardware.set_steering(
            Steering(head.hash_types, key, table, head.unclassified_queue)
        )

    async def _set_table(self, request: Request, _: int) -> None:
        data, left = request.data[CONTROL_HEADER.size :], request.length - CONTROL_HEADER.size
        lists: list[list[bytes]] = []
        for _kind in ("unicast", "multicast"):
            if left < 4:
                raise RefusedError(f"The table ends {4 - left} bytes before a number of addresses")
            # Behind what the mailbox holds nothing is known but how much there is.
            count = int.from_bytes(data[:4], "little") if len(data) >= 4 else left // MAC_BYTES
            size = 4 + MAC_BYTES * count if len(data) >= 4 else left
            if size > left:
                raise RefusedError(f"{count} addresses in {left - 4} bytes")
            octets = data[4:size]
            whole = [octets[i : i + MAC_BYTES] for i in range(0, len(octets), MAC_BYTES)]
            lists.append(whole if count == len(whole) else [bytes(MAC_BYTES)] * count)
            data, left = data[size:], left - size
        if left:
            raise RefusedError(f"{left} bytes behind the table")
        await self._fill(*lists)

    async def _fill(self, unicast: list[bytes], multicast: list[bytes]) -> None:
        """Sets the addresses, or lets all of a kind pass that do not fit."""
        assert self._wanted is not None
        addresses: list[bytes] = []
        spilled = set()
        for mode, those in (("all_unicast", unicast), ("all_multicast", multicast)):
            if len(addresses) + len(those) > NET_ADDRESSES:
                spilled.add(mode)
            else:
                addresses += those
        self._spilled = frozenset(spilled)
        await self._set(self._wanted)  # first: nothing that is wanted is to be lost
        await self._hardware.set_addresses(addresses)
