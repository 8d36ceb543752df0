"""The initiators of one guest function: their channels, and what these mean for the hardware.

An initiator's own queue pair is its one channel. Its row says to which destination it is connected,
and the card holds requests for any other one and says which (``connected`` in
``hdl/transport/send``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from firmware.dc.channel import Attempt, Channel, Failed, Opened, Phase, Rules, Send, wanted_keep
from firmware.dc.context import Peer
from firmware.dc.packets import ControlPacket
from firmware.device import ConnectionHardware, Operations
from firmware.objects import Destination, Objects, Qp
from firmware.qp import initiator_number
from firmware.qp_commands import QpCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import QpState, QpType, WcStatus

__all__ = ["Initiators"]

Transmit = Callable[[ControlPacket, dict[str, object], int], Awaitable[None]]


@dataclass
class _Initiator:
    """``destination``: of its connection, as its row has it; ``psn``: the oldest one that is not
    acknowledged; ``held``: no request may begin."""

    qp: Qp
    channel: Channel = field(default_factory=Channel)
    destination: Destination | None = None
    psn: int = 0
    held: bool = True


class Initiators:
    """Opens and closes the connections of a function's initiators. ``random``: so many bits."""

    def __init__(
        self,
        hardware: Operations,
        connections: ConnectionHardware,
        objects: Callable[[], Objects],
        qps: QpCommands,
        transmit: Transmit,
        random: Callable[[int], int],
    ):
        self._hardware, self._connections, self._objects = hardware, connections, objects
        self._qps, self._transmit, self._random = qps, transmit, random
        self._all: dict[int, _Initiator] = {}

    def forget(self) -> None:
        """The function has been reset: its initiators are gone, and their peers find out."""
        self._all.clear()

    @property
    def connecting(self) -> bool:
        """Whether one has a connection, or makes or ends one."""
        return any(one.channel.phase is not Phase.IDLE for one in self._all.values())

    async def step(self, now: int) -> None:
        """Goes on with each initiator."""
        for qp in self._objects().qps.all():
            known = self._all.get(qp.number)
            if qp.type == QpType.DCI and (known is None or known.qp is not qp):
                if known is not None:
                    await self._leave(known)
                self._all[qp.number] = _Initiator(qp)
        for pair, one in list(self._all.items()):
            if self._objects().qps.find(pair) is not one.qp:
                await self._leave(one)
                del self._all[pair]
            elif await self._qps.actual_state(one.qp) != QpState.RTS:
                await self._leave(one)
            else:
                await self._go_on(one, now)

    async def received(self, now: int, packet: ControlPacket, peer: Peer) -> bool:
        """A packet has come; whether it is an initiator's. From another address it is nobody's."""
        pair = abi.qp_index(packet.dest, self._objects().limits.config.qps)
        one = self._all.get(pair)
        if one is None or one.destination is None:
            return False
        if one.channel.attempt.number != packet.dest:
            return False
        if bytes(one.destination.ah["grh"]["dgid"]) == peer.gid:
            step = one.channel.received(now, self._rules(one.qp), packet)
            await self._do(one, now, *step)
        return True

    def _rules(self, qp: Qp) -> Rules:
        attrs = qp.attrs
        timeout = 4096 << attrs["timeout"] if attrs["timeout"] else 0
        return Rules(
            timeout=timeout,
            retry_cnt=attrs["retry_cnt"],
            rnr_retry=attrs["rnr_retry"],
            mtu=attrs["path_mtu"],
            depth=attrs["max_rd_atomic"],
            keep=wanted_keep(timeout, attrs["retry_cnt"]),
        )

    async def _go_on(self, one: _Initiator, now: int) -> None:
        """One that can send: what has happened, and what its channel makes of it."""
        rules, channel = self._rules(one.qp), one.channel
        if channel.phase is Phase.OPEN:
            await self._look(one, now, rules)
        elif channel.phase is Phase.IDLE:
            await self._begin(one, now, rules)
        else:
            await self._do(one, now, *channel.timer(now, rules))

    async def _begin(self, one: _Initiator, now: int, rules: Rules) -> None:
        """Connects, if a request waits; one for no destination ends as such."""
        number = await self._connections.asked(one.qp.number)
        if number is None or one.qp.connected.get("min_rnr_timer"):
            return
        one.destination = self._objects().destinations.find(number)
        if one.destination is None or one.destination.pd is not one.qp.pd:
            one.destination = None
            await self._refuse(one, number, WcStatus.LOC_QP_OP_ERR)
            return
        bits = (self._objects().limits.config.qps - 1).bit_length()
        generation = self._random(abi.QPN_BITS - bits) % ((1 << abi.QPN_BITS - bits) - 1)
        fresh = Attempt(
            generation << bits | one.qp.number, self._random(64), self._random(abi.PSN_BITS)
        )
        step = one.channel.connect(now, rules, fresh, one.destination.dctn, one.destination.key)
        await self._do(one, now, *step)

    async def _look(self, one: _Initiator, now: int, rules: Rules) -> None:
        """An open connection: whether something was answered, and whether it is to end."""
        assert one.destination is not None, "an open channel has a destination"
        acknowledged = await self._hardware.read_fields("qp_ack", one.qp.number, "psn")
        if acknowledged["psn"] != one.psn:
            one.psn, one.channel = acknowledged["psn"], one.channel.progress(now)
        asked = await self._connections.asked(one.qp.number)
        waits = asked is not None and asked != one.destination.number
        drained = await self._qps.drained(one.qp)
        if not one.held and one.channel.should_end(now, rules, drained=drained, waits=waits):
            await self._hold(one)
            drained = await self._qps.drained(one.qp)
        if one.held and drained:
            await self._do(one, now, *one.channel.close(now, rules, await self._next_psn(one)))

    async def _next_psn(self, one: _Initiator) -> int:
        return (await self._hardware.read_fields("qp_tx", one.qp.number, "psn"))["psn"]

    async def _do(self, one: _Initiator, now: int, channel: Channel, effects: tuple) -> None:
        one.channel = channel
        for effect in effects:
            if isinstance(effect, Send):
                assert one.destination is not None, "a packet goes to a destination"
                await self._transmit(effect.packet, one.destination.ah, one.qp.attrs["pkey_index"])
            elif isinstance(effect, Opened):
                await self._open(one, effect)
            elif isinstance(effect, Failed):
                assert one.destination is not None, "a destination has refused"
                await self._refuse(one, one.destination.number, effect.status)

    async def _open(self, one: _Initiator, opened: Opened) -> None:
        """Lets requests to the destination begin. None can before, so the rows are nobody's."""
        qp, destination = one.qp, one.destination
        assert destination is not None, "an open channel has a destination"
        hardware, pair, psn = self._hardware, one.qp.number, opened.psn
        await hardware.drain()
        for table, changed in (
            ("qp_ack", {"psn": psn, "start": psn, "retries": 0, "rnr_retries": 0}),
            ("qp_tx", {"psn": psn, "unasked": 0}),
        ):
            row = await hardware.read_row(table, pair)
            await hardware.write_row(table, pair, row | changed)
        await hardware.write_row("qp_sent", pair, {"psn": psn})
        await self._connections.forget(pair)
        one.psn, one.held = psn, False
        qp.attrs["ah_attr"] = destination.ah
        qp.connected = {
            **initiator_number(qp.qpn),
            "qpn": one.channel.attempt.number,
            "dest_qpn": opened.context,
            "max_rd_atomic": opened.depth,
            "recv_pd": destination.number,
            "min_rnr_timer": 0,
        }
        await self._configure(qp)

    async def _hold(self, one: _Initiator) -> None:
        """Lets no request begin; those that have go on."""
        one.held = True
        one.qp.connected["recv_pd"] = 0
        await self._qps.configure(one.qp, QpState.RTS)
        await self._hardware.drain()

    async def _refuse(self, one: _Initiator, number: int, status: WcStatus) -> None:
        """Lets the request that waits for destination ``number`` end with ``status``."""
        one.qp.connected |= {"recv_pd": number, "min_rnr_timer": int(status)}
        await self._configure(one.qp)

    async def _configure(self, qp: Qp) -> None:
        await self._qps.configure(qp, QpState.RTS)
        await self._hardware.drain()  # no request is given back by the row of before
        await self._hardware.wake(qp.number)

    async def _leave(self, one: _Initiator) -> None:
        """It does not send any more: its peer is told, once."""
        channel, effects = one.channel.abandon(one.psn)
        await self._do(one, 0, channel, effects)
        if one.destination is not None:
            await self._connections.forget(one.qp.number)
        one.destination, one.held = None, True
