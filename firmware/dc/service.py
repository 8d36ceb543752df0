"""The connections of one guest function: what packets that have come are for, and what time does.

The firmware calls ``step`` in each of its steps, and ``received`` with each packet that has come
for the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firmware.dc.context import Peer
from firmware.dc.initiators import Initiators
from firmware.dc.packets import Connect, ControlPacket, Disconnect, parse
from firmware.dc.targets import Targets
from firmware.device import ConnectionHardware, Operations, Row
from firmware.machine import Machine
from firmware.objects import Objects, Qp
from firmware.pkeys import PkeyTable
from firmware.qp import raw, udp_source_port
from firmware.qp_commands import QpCommands
from hdl.abi.enums import QpType

__all__ = ["DcService"]

_MEMBER, _FULL = 0x7FFF, 0x8000


class DcService:
    """Opens and closes the connections of a function. ``report``: of events."""

    def __init__(
        self,
        hardware: Operations,
        connections: ConnectionHardware,
        objects: Callable[[], Objects],
        qps: QpCommands,
        pkeys: PkeyTable,
        report: Callable[..., None],
        machine: Machine,
    ):
        self._connections, self._objects, self._pkeys = connections, objects, pkeys
        self._now, random = machine.clock, machine.random
        self.initiators = Initiators(hardware, connections, objects, qps, self._transmit, random)
        self.targets = Targets(hardware, objects, qps, self._transmit, report)
        self._told: dict[str, dict[int, dict[str, Any]]]
        self.tell_all()

    @property
    def busy(self) -> bool:
        """Whether there is anything that time or a packet could change."""
        objects = self._objects()
        dynamic = (QpType.DCI, QpType.DCT)
        return bool(objects.contexts) or any(qp.type in dynamic for qp in objects.qps.all())

    @property
    def connecting(self) -> bool:
        """Whether time alone may soon change something."""
        return self.initiators.connecting or self.targets.repeating

    def forget(self) -> None:
        """The function has been reset."""
        self.initiators.forget()
        self.targets.forget()

    def changes(self) -> dict[str, dict[str, Any]]:
        """What has changed of the connections since the last call, for a journal: by kind and pair,
        None for one that has gone."""
        now = {"ends": self.targets.records(), "channels": self.initiators.records()}
        found = {}
        for kind, records in now.items():
            told = self._told[kind]
            gone = {str(pair): None for pair in told if pair not in records}
            new = {str(pair): one for pair, one in records.items() if told.get(pair) != one}
            if gone or new:
                found[kind] = gone | new
        self._told = now
        return found

    def tell_all(self) -> None:
        """The next ``changes`` has all that there is."""
        self._told = {"ends": {}, "channels": {}}

    async def take_over(self, past: dict[str, Any]) -> None:
        """Goes on where a firmware has ended that has written this down. Raises KeyError or Refused
        for what cannot be."""
        now = self._now()
        ends, channels = (
            {int(pair): one for pair, one in past.get(kind, {}).items()}
            for kind in ("ends", "channels")
        )
        await self.targets.take_over(now, ends)
        await self.initiators.take_over(now, channels)

    async def step(self) -> None:
        """Looks at all connections."""
        now = self._now()
        await self.targets.step(now)
        await self.initiators.step(now)

    async def left(self, qp: Qp) -> None:
        """A target is in RESET or ERR, or gone."""
        await self.targets.leave(qp)

    async def received(self, row: Row) -> None:
        """A packet has come, a ``ReceivedControl``. One of another partition is dropped, and so is
        one that is nobody's."""
        if not self._member(row["pkey"]):
            return
        data = row["content"].to_bytes(28, "little")
        packet = parse(row["opcode"], row["dest_qp"], row["psn"], data)
        if packet is None:
            return
        peer = Peer(row["src_gid"].to_bytes(16, "little"), row["src_mac"].to_bytes(6, "little"))
        now = self._now()
        if isinstance(packet, Connect):
            await self.targets.connect(now, packet, peer, row["gid_index"])
        elif isinstance(packet, Disconnect):
            await self.targets.disconnect(now, packet, peer, row["gid_index"])
        else:
            await self.initiators.received(now, packet, peer)

    def _member(self, pkey: int) -> bool:
        """Whether a packet is of a partition of the function; two limited members do not talk."""
        return any(
            own & _MEMBER == pkey & _MEMBER and (own | pkey) & _FULL
            for own in self._pkeys.all
            if own
        )

    async def _transmit(self, packet: ControlPacket, ah: dict, pkey_index: int) -> None:
        """Sends a packet to an address."""
        grh = ah["grh"]
        await self._connections.send(
            {
                "opcode": packet.OPCODE,
                "dest_qp": packet.dest,
                "psn": packet.psn,
                "pkey": self._pkeys[pkey_index],
                "ack_request": int(packet.ASKS),
                "content": int.from_bytes(packet.pack()[:25], "little"),
                "av.sgid_index": grh["sgid_index"],
                "av.dgid": raw(bytes(grh["dgid"])),
                "av.dmac": raw(bytes(ah["roce_dmac"])),
                "av.traffic_class": grh["traffic_class"],
                "av.flow_label": grh["flow_label"],
                "av.hop_limit": grh["hop_limit"],
                "av.sl": ah["sl"],
                "av.udp_source": udp_source_port(packet.dest, packet.dest, grh["flow_label"]),
            }
        )
