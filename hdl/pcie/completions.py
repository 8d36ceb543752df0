"""Completions of the card's reads as beats of the host port."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import increment
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import edge_read_beat

from .descriptors import WIDTH, CompletionStatus, RcError, completion_beat, rc_descriptor
from .realign import Realign
from .tags import PAGE_BITS, outstanding, verdict

__all__ = ["COUNTERS", "Completions", "Misplaced", "place", "rest"]

#: Words of a beat.
WORDS = WIDTH // 32
#: What is counted.
COUNTERS = ("poisoned", "refused", "timeouts", "malformed", "unexpected")


def rest() -> data.StructLayout:
    """What is left of a piece: ``low``: the lowest bits of where it begins; ``bytes`` of it."""
    return data.StructLayout({"low": 7, "bytes": PAGE_BITS + 1})


def place() -> data.StructLayout:
    """What is left of the piece of ``tag``, if any of it has come (``begun``)."""
    return data.StructLayout({"tag": 8, "rest": rest(), "begun": 1})


#: Whether a completion is not the one that must come next, by its ``rc_descriptor``, what is known
#: of its tag (``outstanding``) and what is left of the tag's piece (``rest``).
Misplaced = Callable[[Any, Any, Any], Value]


class Completions(wiring.Component):
    """Puts the bytes of completions into the lanes of their addresses, and ends tags.

    Parameters: ``misplaced``: how a completion's place is checked.
    Members: ``i``: the block's packets; ``rd_rsp``: the host port; ``tag``,
    ``state``, ``end``, ``again``, ``verdict``, ``overdue``: see ``ReadTags``; ``at`` In: what is
    left of the piece of ``tag``, if ``misplaced`` asks for it; ``moved`` Out: the same behind the
    completion that begins in this cycle; a counter of each of ``COUNTERS`` Out, which wraps.
    A completion ends at a multiple of 64 bytes or with its request (PCI Express Base Specification,
    "Read Completion Boundary"), so its beats are beats of the host port.
    Errors: a request whose completion is poisoned, has another status than SC, has an error code or
    is not where it should be, ends with ``error`` when its last completion has come. A request that
    is late ends at once, with ``error``. A completion of a tag without request is dropped.
    Latency: 4 cycles. Throughput: a beat a cycle, and one more for a completion that has words in
    one more beat of memory than of its own. ``i.ready`` is a register. Reset: empty.
    Source: PG213, "Requester Completion Interface", for the descriptor.
    """

    def __init__(self, *, config: NicConfig, misplaced: Misplaced):
        self._tags, self._misplaced = config.read_tags, misplaced
        super().__init__(
            {
                "i": In(stream.Signature(completion_beat())),
                "rd_rsp": Out(stream.Signature(edge_read_beat(WIDTH), always_ready=True)),
                "again": Out(stream.Signature(8, always_ready=True)),
                "tag": Out(8),
                "state": In(outstanding()),
                "end": Out(1),
                "verdict": Out(stream.Signature(verdict(), always_ready=True)),
                "overdue": In(stream.Signature(8)),
                "at": In(rest()),
                "moved": Out(stream.Signature(place(), always_ready=True)),
                **{name: Out(16) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        facts = data.StructLayout({"tag": 8, "ours": 1, "bad": 1, "completed": 1, "final": 1})
        lanes = data.StructLayout({"up": range(WORDS), "size": range(WORDS)})
        m.submodules.realign = realign = Realign(width=WIDTH, side=facts)
        packets = self._packets(m)
        beat, moved = packets.p.beat, realign.i.payload
        head = beat.head
        inside, taken = Signal(), Signal()
        fresh, kept, now = Signal(facts), Signal(facts), Signal(facts)
        fresh_place, kept_place, there = Signal(lanes), Signal(lanes), Signal(lanes)
        m.d.comb += [
            self.tag.eq(head.tag),  # of the packet that begins; its later beats do not show it
            now.eq(Mux(inside, kept, fresh)),
            there.eq(Mux(inside, kept_place, fresh_place)),
            realign.i.valid.eq(packets.valid),
            packets.ready.eq(realign.i.ready),
            taken.eq(realign.i.valid & realign.i.ready),
            self.end.eq(taken & ~inside & fresh.ours & fresh.completed),
        ]
        with m.If(taken & ~inside):
            m.d.sync += [kept.eq(fresh), kept_place.eq(fresh_place)]
        with m.If(taken):
            m.d.sync += inside.eq(~beat.last)
        cut_off = Signal()
        m.d.comb += [
            cut_off.eq(beat.abort & beat.last),
            moved.data.eq(beat.data),
            moved.up.eq(there.up),
            moved.first.eq(~inside),
            moved.last.eq(beat.last),
            moved.spill.eq(there.size + there.up >= WORDS),
            moved.side.eq(now),
            moved.side.bad.eq(now.bad | cut_off),
        ]
        m.d.comb += [
            self.verdict.valid.eq(taken & beat.last & now.ours),
            self.verdict.p.tag.eq(now.tag),
            self.verdict.p.bad.eq(moved.side.bad & ~now.completed),
        ]
        self._judge(m, head, packets.p.given_up, fresh, taken & ~inside)
        with m.If(taken & cut_off & now.ours):
            increment(m, self.malformed)
        m.d.comb += [
            fresh_place.up.eq(head.lower_addr[2:6]),
            fresh_place.size.eq(head.words - 1),  # of the last beat, less one
            self.moved.valid.eq(taken & ~inside & fresh.ours),
            self.moved.p.tag.eq(head.tag),
            self.moved.p.rest.low.eq((self.at.low[2:] + head.words) << 2),
            self.moved.p.rest.bytes.eq(self.at.bytes + self.at.low[:2] - (head.words << 2)),
            self.moved.p.begun.eq(~fresh.completed),
        ]
        self._answer(m, realign.o)
        return m

    def _packets(self, m: Module):
        """Beats of the block, and between its packets one of the same form for each late tag."""
        shape = data.StructLayout({"beat": completion_beat(), "given_up": 1})
        m.submodules.skid = skid = Skid(shape=shape)
        inside, expires, late = Signal(), Signal(), Signal(rc_descriptor())
        m.d.comb += [
            expires.eq(self.overdue.valid & ~inside),
            skid.i.payload.given_up.eq(expires),
            skid.i.payload.beat.eq(self.i.payload),
            skid.i.valid.eq(self.i.valid | expires),
            self.i.ready.eq(skid.i.ready & ~expires),
            self.overdue.ready.eq(skid.i.ready & expires),
            late.tag.eq(self.overdue.payload),
            late.error.eq(RcError.TIMEOUT),
        ]
        with m.If(expires):
            made = skid.i.payload.beat
            m.d.comb += [
                made.head.eq(late),
                made.abort.eq(0),
                made.last.eq(1),
            ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += inside.eq(~self.i.p.last)
        return skid.o

    def _judge(self, m: Module, head, given_up, fresh, counts) -> None:
        """What becomes of a packet, by its descriptor and what is known of its tag."""
        state = self.state
        poison, refusal, timeout, misplaced = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            poison.eq(head.poisoned | (head.error == RcError.POISONED)),
            refusal.eq(head.status != CompletionStatus.SC),
            timeout.eq((head.error == RcError.TIMEOUT) | (head.error == RcError.FLR)),
        ]
        boundary = (head.lower_addr[2:6] + head.words)[:4] == 0
        m.d.comb += [
            misplaced.eq(
                (head.error != RcError.NONE)
                | self._misplaced(head, state, self.at)
                | ~(head.completed | boundary)
            ),
            fresh.tag.eq(self.tag),
            fresh.final.eq(state.final),
            fresh.completed.eq(head.completed | timeout),
            fresh.ours.eq(state.live & (state.late | ~given_up)),
            fresh.bad.eq(state.bad | poison | refusal | timeout | misplaced),
        ]
        with m.If(counts):
            with m.If(~fresh.ours):
                with m.If(~given_up):
                    increment(m, self.unexpected)
            with m.Elif(timeout):
                increment(m, self.timeouts)
            with m.Elif(poison):
                increment(m, self.poisoned)
            with m.Elif(refusal):
                increment(m, self.refused)
            with m.Elif(misplaced):
                increment(m, self.malformed)

    def _answer(self, m: Module, moved) -> None:
        """The host port's beats, and the tags whose next piece may be asked for."""
        side, closes = moved.p.side, Signal()
        m.d.comb += [
            moved.ready.eq(1),
            closes.eq(moved.p.last & side.completed),
            self.rd_rsp.valid.eq(moved.valid & side.ours & (~side.bad | closes)),
            self.rd_rsp.p.tag.eq(side.tag),
            self.rd_rsp.p.data.eq(moved.p.data),
            self.rd_rsp.p.last.eq(closes & (side.final | side.bad)),
            self.rd_rsp.p.error.eq(closes & side.bad),
            self.again.valid.eq(moved.valid & side.ours & closes & ~side.bad & ~side.final),
            self.again.payload.eq(side.tag),
        ]
