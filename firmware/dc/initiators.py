"""The initiators of one guest function: their channels, and what these mean for the hardware.

An initiator's own queue pair is its one channel. Its row says to which destination it is connected
and at which stream it is, and the card holds requests for any other one and says which
(``connected`` in ``hdl/transport/send``). So all that is under way is of one stream. When that
fails, the card flushes what is of it, and holds all else until the row's error is taken away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from firmware.dc.channel import Attempt, Channel, Failed, Opened, Phase, Rules, Send, wanted_keep
from firmware.dc.context import Peer
from firmware.dc.packets import ControlPacket
from firmware.dc.records import made_channel, opened_row, plain_channel
from firmware.device import ConnectionHardware, Operations
from firmware.objects import Destination, Objects, Qp, Refused
from firmware.qp import initiator_row
from firmware.qp_commands import QpCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import QpState, QpType, WcStatus

__all__ = ["Initiators"]

#: Looks at a stream that is to go on, when its last completion may have been seen before its row.
#: A guest that asks too early is refused, and does not keep the firmware from others.
DRAIN_POLLS = 16
#: What a row of ``qp_ack`` has when nothing is under way.
_FRESH = dict.fromkeys(
    ("read_begun", "status", "resent", "recovering", "waiting", "retries", "rnr_retries"), 0
)

Transmit = Callable[[ControlPacket, dict[str, object], int], Awaitable[None]]


@dataclass
class _Initiator:
    """``destination``: of its connection, as its row has it; ``stream``: which that is made for;
    ``psn``: the oldest one that is not acknowledged; ``held``: no request may begin; ``left``: it
    is not in RTS, and its peer has been told. ``sent``, ``ended``: fields of its rows as they were
    looked at last, when ``failed`` says that a stream of it had."""

    qp: Qp
    channel: Channel = field(default_factory=Channel)
    destination: Destination | None = None
    stream: int = 0
    psn: int = 0
    held: bool = True
    left: bool = False
    failed: bool = False
    sent: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    @property
    def drained(self) -> bool:
        """Whether each request that had begun has ended, by what was looked at."""
        return self.sent["high"] == self.ended["position"]


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

    def records(self) -> dict[int, dict[str, Any]]:
        """The connections that there are, by pair, for a journal."""
        return {
            pair: plain_channel(one.channel, one.destination, one.qp.stream)
            for pair, one in self._all.items()
            if one.destination is not None and one.channel.phase in (Phase.OPEN, Phase.CLOSING)
        }

    async def take_over(self, now: int, past: dict[int, dict[str, Any]]) -> None:
        """Goes on with the initiators of a firmware that has ended. Connections that are open end
        as soon as all that is under way has; all others begin anew."""
        for qp in self._objects().qps.all():
            if qp.type != QpType.DCI:
                continue
            self._all[qp.number] = one = _Initiator(qp)
            if (plain := past.get(qp.number)) is not None:
                one.channel, one.destination = made_channel(plain, qp, now)
                one.stream = qp.stream = plain["stream"]
                qp.attrs["ah_attr"] = one.destination.ah
                qp.connected = opened_row(qp, one.channel, one.destination)
            if await self._sends(one) and not one.failed:
                # Whatever the firmware before was about to do: what waits says so again.
                await self._hold(one)
                await self._hardware.wake(qp.number)
                one.held = one.channel.phase is not Phase.OPEN

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
                continue
            if await self._sends(one):
                one.left = False
                await self._go_on(one, now)
            else:
                await self._leave(one)

    async def _sends(self, one: _Initiator) -> bool:
        """Whether it is in RTS. Its send side is looked at here, with as few accesses as that
        takes; what else can break it is seen where events are looked for."""
        if one.qp.state != QpState.RTS:
            return False
        read, pair = self._hardware.read_fields, one.qp.number
        one.sent = await read("qp_tx", pair, "high", "error")
        one.ended = await read("qp_ack", pair, "psn", "position", "error")
        one.failed = bool(one.sent["error"] or one.ended["error"])
        full = one.qp.streams is not None and one.qp.streams.full
        return not (one.failed or full) or (await self._qps.look(one.qp))[0] == QpState.RTS

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
        if one.failed:
            await self._flush(one, now, rules)
        elif channel.phase is Phase.OPEN:
            await self._look(one, now, rules)
        elif channel.phase is Phase.IDLE:
            await self._begin(one, now, rules)
        else:
            await self._do(one, now, *channel.timer(now, rules))

    async def _begin(self, one: _Initiator, now: int, rules: Rules) -> None:
        """Connects, if a request waits; one for no destination, or of a stream where there are
        none, ends as such, and one of a stream that has failed is flushed."""
        asked = await self._connections.asked(one.qp.number)
        if asked is None:
            return
        number, one.stream = asked
        streams = one.qp.streams
        if streams is not None and one.stream in streams.errored:
            await self._end_stream(one, number)
            return
        one.destination = self._objects().destinations.find(number)
        usable = one.destination is not None and one.destination.pd is one.qp.pd
        if one.destination is None or not usable or (streams is None and one.stream):
            one.destination = None
            await self._refuse(one, number, WcStatus.LOC_QP_OP_ERR)
            return
        bits = (self._objects().limits.config.qps - 1).bit_length()
        generation = self._random(abi.QPN_BITS - bits) % ((1 << abi.QPN_BITS - bits) - 1)
        fresh = Attempt(
            generation << bits | one.qp.number, self._random(64), self._random(abi.PSN_BITS)
        )
        if one.qp.connected["min_rnr_timer"]:  # of another request, which may still begin
            await self._hold(one)
        step = one.channel.connect(now, rules, fresh, one.destination.dctn, one.destination.key)
        await self._do(one, now, *step)

    async def _look(self, one: _Initiator, now: int, rules: Rules) -> None:
        """An open connection: whether something was answered, and whether it is to end."""
        assert one.destination is not None, "an open channel has a destination"
        if one.ended["psn"] != one.psn:
            one.psn, one.channel = one.ended["psn"], one.channel.progress(now)
        asked = await self._connections.asked(one.qp.number)
        waits = asked is not None and asked != (one.destination.number, one.qp.stream)
        drained = one.drained
        if not one.held and one.channel.should_end(now, rules, drained=drained, waits=waits):
            await self._hold(one)
            drained = await self._qps.drained(one.qp)
        if not (one.held and drained):
            return
        ends = one.channel.should_end(now, rules, drained=True, waits=False)
        if asked is not None and not ends and self._may_follow(one, *asked):
            await self._follow(one, asked[1])
        else:
            await self._do(one, now, *one.channel.close(now, rules, await self._next_psn(one)))

    @staticmethod
    def _may_follow(one: _Initiator, number: int, stream: int) -> bool:
        """Whether requests of another stream can have the connection, as all before has ended."""
        assert one.destination is not None, "an open channel has a destination"
        streams = one.qp.streams
        return (
            streams is not None and stream not in streams.errored
        ) and number == one.destination.number

    async def _follow(self, one: _Initiator, stream: int) -> None:
        """Lets requests of a stream to the same destination begin."""
        assert one.destination is not None, "an open channel has a destination"
        if (await self._qps.look(one.qp))[1]:
            return  # it has failed since it was looked at last
        await self._connections.forget(one.qp.number)
        one.held, one.qp.stream = False, stream
        one.qp.connected |= initiator_row(one.qp, destination=one.destination.number) | {
            "qpn": one.channel.attempt.number
        }
        await self._configure(one.qp)

    async def _flush(self, one: _Initiator, now: int, rules: Rules) -> None:
        """A stream has failed: the card flushes what is of it, until a request of another one
        waits. Its connection ends, as nobody knows what of it was executed."""
        channel = one.channel
        if channel.phase is Phase.CLOSING:
            await self._do(one, now, *channel.timer(now, rules))
            return
        if not one.drained:
            return
        if channel.phase is Phase.OPEN:
            one.held = True
            await self._do(one, now, *channel.close(now, rules, await self._next_psn(one)))
            return
        if channel.phase is not Phase.IDLE:  # a request that could not be read was in between
            await self._do(one, now, *channel.abandon(one.psn))
        asked = await self._connections.asked(one.qp.number)
        assert one.qp.streams is not None, "without streams the queue pair has failed"
        if asked is None:
            return
        number, one.stream = asked
        if one.stream in one.qp.streams.errored:
            await self._end_stream(one, number)
        else:
            await self._recover(one)

    async def _end_stream(self, one: _Initiator, number: int) -> None:
        """Lets the requests of a stream that has failed be flushed. ``number``: the destination of
        the one that waits."""
        await self._connections.forget(one.qp.number)
        one.qp.stream = one.stream
        one.qp.connected = initiator_row(one.qp, destination=number)
        await self._qps.set_send_error(one.qp, 1)
        await self._configure(one.qp)

    async def _recover(self, one: _Initiator) -> None:
        """Takes the error of a stream out of the row: from now on each request is held, and said of
        which stream it is."""
        one.held = True
        one.qp.connected = initiator_row(one.qp)
        await self._qps.set_send_error(one.qp, 0)
        await self._configure(one.qp)

    async def reset_stream(self, qp: Qp, stream: int) -> None:
        """A stream that has failed goes on. Refused while requests of it are still flushed."""
        one = self._all.get(qp.number)
        state, failed = await self._qps.look(qp)
        if state != QpState.RTS:
            raise Refused(f"QP {qp.qpn:#x} is not in RTS")
        if one is None or one.qp is not qp or qp.stream != stream or not failed:
            return  # nothing of it is in the hardware
        for _ in range(DRAIN_POLLS):
            if await self._qps.drained(qp):
                await self._recover(one)
                return
        raise Refused(f"Requests of stream {stream} are being flushed")

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
        """Lets requests to the destination begin. None can before, so the rows are nobody's. A
        journal has it first: rows that are in use are never written by another firmware."""
        qp, destination = one.qp, one.destination
        assert destination is not None, "an open channel has a destination"
        self._objects().checkpoint()
        hardware, pair, psn = self._hardware, one.qp.number, opened.psn
        await hardware.drain()
        for table, changed in (
            ("qp_ack", _FRESH | {"psn": psn, "start": psn}),
            ("qp_tx", {"psn": psn, "unasked": 0}),
        ):
            row = await hardware.read_row(table, pair)
            await hardware.write_row(table, pair, row | changed)
        await hardware.write_row("qp_sent", pair, {"psn": psn})
        await self._connections.forget(pair)
        one.psn, one.held, qp.stream = psn, False, one.stream
        qp.attrs["ah_attr"] = destination.ah
        qp.connected = opened_row(qp, one.channel, destination)
        await self._configure(qp)

    async def _hold(self, one: _Initiator) -> None:
        """Lets no request begin; those that have go on."""
        one.held = True
        one.qp.connected |= {"recv_pd": 0, "min_rnr_timer": 0}
        await self._qps.configure(one.qp, QpState.RTS)
        await self._hardware.drain()

    async def _refuse(self, one: _Initiator, number: int, status: WcStatus) -> None:
        """Lets the request that waits for destination ``number`` end with ``status``."""
        await self._connections.forget(one.qp.number)
        one.qp.stream = one.stream
        one.qp.connected = initiator_row(one.qp, destination=number, status=int(status))
        await self._configure(one.qp)

    async def _configure(self, qp: Qp) -> None:
        await self._qps.configure(qp, QpState.RTS)
        await self._hardware.drain()  # no request is given back by the row of before
        await self._hardware.wake(qp.number)

    async def _leave(self, one: _Initiator) -> None:
        """It does not send any more: its peer is told, once."""
        if one.left:
            return
        one.left = True
        channel, effects = one.channel.abandon(one.psn)
        await self._do(one, 0, channel, effects)
        await self._connections.forget(one.qp.number)
        one.destination, one.held = None, True
