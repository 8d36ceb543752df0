"""The targets of one guest function, and the ends of the connections to them.

An end has the row of a queue pair that nobody else has, as a shared receive queue has: it is the
responder of an RC queue pair, and its receive requests are those of the target's queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from firmware.dc.context import (
    FIRST_PAUSE,
    Context,
    Dct,
    Dead,
    Finding,
    Peer,
    RefusalLimit,
    answer,
    end,
    granted,
    judge,
)
from firmware.dc.packets import (
    CloseRequest,
    Connect,
    ControlPacket,
    Disconnect,
    Nak,
    ReplyStatus,
    keep_ns,
)
from firmware.dc.records import made_context, made_end, plain_end
from firmware.device import Operations
from firmware.objects import Objects, Qp, Refused
from firmware.qp import target_number
from firmware.qp_commands import QpCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import AhFlags, EventType, QpState, QpType
from hdl.abi.layout import Values
from hdl.wire.constants import NAK_INVALID_REQUEST, NAK_REMOTE_ACCESS, NAK_REMOTE_OPERATION

__all__ = ["TargetCounts", "Targets"]

#: Fatal NAK -> the counter of a target, and its event. The last one is the target's own fault.
_FATAL = {
    NAK_INVALID_REQUEST: ("request_errors", EventType.DCT_REQ_ERR),
    NAK_REMOTE_ACCESS: ("access_errors", EventType.DCT_ACCESS_ERR),
    NAK_REMOTE_OPERATION: (None, None),
}
#: Fields of ``qp_rx`` that tell how an end is.
_LOOKED_AT = ("psn", "replay_seq", "error", "syndrome", "message")
#: Time without a request after which an end may be asked to close, ns.
QUIET = 20_000
#: Time that a row is not used again, so that packets of the last connection have gone, ns.
QUARANTINE = 16_000_000
#: Pause between two NAKs up to which they come often, ns.
OFTEN = 8 * FIRST_PAUSE


@dataclass
class TargetCounts:
    """Of a target: see ``rsp_query_dct``. ``told``: the events that it has had."""

    connects: int = 0
    key_violations: int = 0
    refused_busy: int = 0
    access_errors: int = 0
    request_errors: int = 0
    told: set[EventType] = field(default_factory=set)


@dataclass
class _End:
    """``progress``: of its row, when it was looked at last; ``dead``: it has sent a fatal NAK;
    ``asked``: when it was asked to close, ns."""

    context: Context
    dct: Qp
    qp: Qp
    progress: tuple[int, ...] = ()
    dead: Dead | None = None
    asked: int = 0

    @cached_property
    def record(self) -> dict[str, Any]:
        """For a journal: what never changes."""
        return plain_end(self.context, self.dct, self.qp)


class Targets:
    """Serves CONNECT and DISCONNECT. ``transmit`` sends a packet to an address."""

    def __init__(
        self,
        hardware: Operations,
        objects: Callable[[], Objects],
        qps: QpCommands,
        transmit: Callable[[ControlPacket, dict, int], Awaitable[None]],
        report: Callable[..., None],
    ):
        self._hardware, self._objects, self._qps = hardware, objects, qps
        self._transmit, self._report = transmit, report
        self._ends: dict[int, _End] = {}
        #: Rows whose connections have ended, and when, oldest first.
        self._resting: deque[tuple[int, int]] = deque()
        self._refusals = RefusalLimit()
        self._opens = 0  # when there are rows again, ns
        #: ns that a row rests.
        self.quarantine = QUARANTINE
        self._counts: dict[int, TargetCounts] = {}

    def forget(self) -> None:
        """The function has been reset: all of it is gone."""
        self._ends.clear()
        self._resting.clear()
        self._counts.clear()

    def counts(self, dct: Qp) -> TargetCounts:
        """What has become of CONNECTs to a target."""
        return self._counts.setdefault(dct.qpn, TargetCounts())

    def records(self) -> dict[int, dict[str, Any]]:
        """The ends that there are, by pair, for a journal."""
        return {pair: one.record for pair, one in self._ends.items()}

    async def take_over(self, now: int, past: dict[int, dict[str, Any]]) -> None:
        """Goes on with the ends of a firmware that has ended; one of which the rows say nothing
        ends. Which rows were resting is not known, so none is used before all have rested."""
        objects = self._objects()
        self._opens = now + self.quarantine
        for pair, plain in sorted(past.items()):
            dct = objects.qps.get(plain["dct"])
            qp = made_end(plain, dct, objects, objects.qps.lend(pair))
            objects.contexts[pair] = qp
            self._ends[pair] = one = _End(made_context(plain, now), dct, qp)
            row = await self._hardware.read_fields("qp_cfg", pair, "state", "qpn")
            if row != {"state": QpState.RTR, "qpn": qp.qpn}:
                await self._free(one, now)

    @property
    def repeating(self) -> bool:
        """Whether one has failed so recently that its NAK goes out again soon."""
        dead = (one.dead for one in self._ends.values())
        return any(one is not None and one.pause <= OFTEN for one in dead)

    def alive(self, dct: Qp) -> int:
        """Connections to a target now."""
        return sum(one.dct is dct for one in self._ends.values())

    async def step(self, now: int) -> None:
        """Ends what has been quiet for its keep time, and lets rows be used again."""
        quiet = []
        for one in list(self._ends.values()):
            row = await self._hardware.read_fields("qp_rx", one.qp.number, *_LOOKED_AT)
            if (progress := (row["psn"], row["replay_seq"])) != one.progress:
                one.progress, one.context = progress, one.context.hear(now)
            elif one.context.over(now):
                await self._free(one, now)
                continue
            if row["error"] and row["syndrome"] in _FATAL:
                await self._repeat(one, row, now)
            elif not row["message"] and now - one.context.heard >= QUIET:
                quiet.append(one)
        if quiet and self._objects().qps.scarce:
            await self._ask(quiet, now)
        while self._resting and now - self._resting[0][0] >= self.quarantine:
            self._give_back(self._resting.popleft()[1])

    async def _repeat(self, one: _End, row: dict[str, int], now: int) -> None:
        """An end is in error: its target counts that, and the NAK goes out again when it is due."""
        if one.dead is None:
            one.dead = Dead(now + FIRST_PAUSE)
            name, event = _FATAL[row["syndrome"]]
            if name is not None and event is not None:
                self._count(one.dct, name, event)
        elif now >= one.dead.due:
            one.dead = one.dead.again(now)
            msn = await self._hardware.read_fields("qp_rx", one.qp.number, "msn")
            nak = Nak(one.context.channel, row["psn"], row["syndrome"], msn["msn"])
            await self._transmit(nak, one.qp.attrs["ah_attr"], one.dct.attrs["pkey_index"])

    async def _ask(self, quiet: list[_End], now: int) -> None:
        """There are few rows: the end that has been quiet longest is asked to close, at most once
        in an eighth of its keep time."""
        for one in sorted(quiet, key=lambda one: one.context.heard):
            if not one.asked or now - one.asked >= keep_ns(one.context.keep) // 8:
                one.asked = now
                context = one.context
                packet = CloseRequest(context.channel, 0, context.number, context.nonce)
                await self._transmit(packet, one.qp.attrs["ah_attr"], one.dct.attrs["pkey_index"])
                return

    def _count(self, dct: Qp, name: str, event: EventType) -> None:
        """Something is wrong with a peer: one event of a kind until the target is asked."""
        counts = self.counts(dct)
        setattr(counts, name, getattr(counts, name) + 1 & 0xFFFF_FFFF)
        if event not in counts.told:
            counts.told.add(event)
            self._report(event, number=dct.qpn)

    def _give_back(self, pair: int) -> None:
        self._objects().contexts.pop(pair)
        self._objects().qps.give_back(pair)

    async def leave(self, dct: Qp) -> None:
        """A target receives nothing any more: its connections end, and the requests that they hold
        end flushed, before this returns."""
        for one in [one for one in self._ends.values() if one.dct is dct]:
            await self._free(one, None)

    async def connect(self, now: int, packet: Connect, peer: Peer, gid_index: int) -> None:
        """A CONNECT has come to the address ``gid_index``."""
        found = self._objects().qps.find(
            abi.qp_index(packet.dest, self._objects().limits.config.qps)
        )
        dct = found if found is not None and found.qpn == packet.dest else None
        if dct is not None and dct.type != QpType.DCT:
            dct = None
        ends = (one for one in self._ends.values() if one.context.is_of(packet, peer))
        known = next((one.context for one in ends if one.dct is dct), None)
        finding = judge(packet, None if dct is None else self._asked(dct), known)
        if dct is not None and finding is Finding.WRONG_KEY:
            self._count(dct, "key_violations", EventType.DCT_KEY_VIOLATION)
        if dct is not None and finding is Finding.NEW:
            known = await self._accept(now, packet, dct, peer, gid_index)
            finding = Finding.NEW if known is not None else Finding.BUSY
        refuses = finding.status in (ReplyStatus.REFUSED, ReplyStatus.IMPOSSIBLE)
        if refuses and not self._refusals.allows(now):
            return
        timer = 0 if dct is None else dct.attrs["min_rnr_timer"]
        reply = answer(packet, finding, known, timer)
        ah = _address(peer, gid_index, None if dct is None else dct)
        await self._transmit(reply, ah, 0 if dct is None else dct.attrs["pkey_index"])

    def _asked(self, dct: Qp) -> Dct:
        """A target, as a CONNECT sees it."""
        return Dct(
            dct.qpn,
            dct.init["dc_key"],
            dct.state == QpState.RTR,
            dct.attrs["path_mtu"],
            dct.attrs["min_rnr_timer"],
            self._objects().limits.device["max_dc_init_rd_atom"],
        )

    async def _accept(
        self, now: int, packet: Connect, dct: Qp, peer: Peer, gid_index: int
    ) -> Context | None:
        """Makes an end; None when there are few rows, or no room for its READs."""
        objects, counts, asked = self._objects(), self.counts(dct), self._asked(dct)
        try:
            if objects.qps.scarce:
                raise Refused("The last eighth of the rows is for queue pairs")
            if now < self._opens:
                raise Refused("Rows of a firmware that has ended may be resting")
            part = objects.slices.take(min(packet.depth, asked.depth))
        except Refused:
            counts.refused_busy = counts.refused_busy + 1 & 0xFFFF_FFFF
            return None
        pair = objects.qps.lend()
        counts.connects = counts.connects + 1 & 0xFFFF_FFFF
        context = granted(packet, asked, objects.next_qpn(pair), peer, now)
        attrs = Values(dict(dct.attrs))
        attrs["ah_attr"] = _address(peer, gid_index, dct)
        attrs["dest_qp_num"], attrs["rq_psn"] = packet.channel, packet.psn
        attrs["path_mtu"], attrs["max_dest_rd_atomic"] = packet.mtu, context.depth
        qp = Qp(dct.pd, None, dct.recv_cq, dct.init, attrs, dct.srq, pair, context.number, part)
        qp.connected = target_number(dct.qpn)
        objects.contexts[pair] = qp
        self._ends[pair] = _End(context, dct, qp)
        objects.qps.touched.add(pair)  # its number is another one from now on
        objects.checkpoint()
        await self._qps.begin_end(qp)
        return context

    async def disconnect(self, now: int, packet: Disconnect, peer: Peer, gid_index: int) -> None:
        """A DISCONNECT has come: it is answered, whatever it finds."""
        pair = abi.qp_index(packet.dest, self._objects().limits.config.qps)
        one = self._ends.get(pair)
        ends, reply = end(packet, peer, None if one is None else one.context)
        dct = None if one is None else one.dct
        pkey = 0 if dct is None else dct.attrs["pkey_index"]
        # First of all, as the initiator waits for it, and sends nothing more to this end.
        await self._transmit(reply, _address(peer, gid_index, dct), pkey)
        if ends and one is not None:
            await self._free(one, now)

    async def _free(self, one: _End, now: int | None) -> None:
        """Ends a connection; its row rests before it is used again. ``now``: None if the time is
        not known, and then it rests from the next look on."""
        del self._ends[one.qp.number]
        await self._qps.end_end(one.qp)
        last = self._resting[-1][0] if self._resting else 0
        self._resting.append((last if now is None else now, one.qp.number))


def _address(peer: Peer, gid_index: int, dct: Qp | None) -> dict:
    """Back to where a packet has come from; all else as the target's attributes say."""
    given = dct.attrs["ah_attr"] if dct is not None else None
    grh = {
        "dgid": peer.gid,
        "flow_label": given["grh"]["flow_label"] if given else 0,
        "sgid_index": gid_index,
        "hop_limit": given["grh"]["hop_limit"] if given else 64,
        "traffic_class": given["grh"]["traffic_class"] if given else 0,
    }
    return {
        "grh": grh,
        "roce_dmac": peer.mac,
        "sl": given["sl"] if given else 0,
        "ah_flags": AhFlags.GRH,
        "port_num": 1,
    }
