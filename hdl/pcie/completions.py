"""Completions of the card's reads as beats of the host port."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import increment
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import edge_read_beat

from .descriptors import WIDTH, CompletionStatus, RcError, completion_beat, rc_descriptor
from .realign import Realign
from .tag_pool import fate
from .tags import PAGE_BITS, outstanding, verdict

__all__ = ["COUNTERS", "Completions", "Misplaced", "known_rest", "place", "rest"]

#: Words of a beat.
WORDS = WIDTH // 32
#: What is counted.
COUNTERS = ("poisoned", "refused", "timeouts", "malformed", "unexpected")


def rest() -> data.StructLayout:
    """What is left of a piece: ``low``: the lowest bits of where it begins; ``bytes`` of it."""
    return data.StructLayout({"low": 7, "bytes": PAGE_BITS + 1})


def known_rest() -> data.StructLayout:
    """What is left of a piece: ``latest`` if completions of it have ``moved``, else ``first``."""
    return data.StructLayout({"first": rest(), "latest": rest(), "moved": 1})


def place() -> data.StructLayout:
    """What is left of the piece of ``tag``."""
    return data.StructLayout({"tag": 8, "rest": rest()})


def _facts() -> data.StructLayout:
    """What is known of a packet behind its first beat. ``tag``: of the bus; ``host``: of the host
    port; ``ours``: the host port hears of it; ``live``: it is of a read that is outstanding;
    ``late``: it is of a tag in quarantine; ``elsewhere``: it is bad too, for its place; see
    ``Completions`` for the others."""
    return data.StructLayout(
        {
            "tag": 8, "host": 8, "ours": 1, "live": 1, "bad": 1, "elsewhere": 1, "astray": 1,
            "completed": 1, "final": 1, "given_up": 1, "late": 1, "frees": 1, "loses": 1,
        }
    )  # fmt: skip


#: Whether a completion is not the one that must come next, by its ``rc_descriptor``, what is known
#: of its tag (``outstanding``), and what is left of the tag's piece (``known_rest``).
Misplaced = Callable[[Any, Any, Any], Value]


class Completions(wiring.Component):
    """Puts the bytes of completions into the lanes of their addresses, and ends tags.

    Parameters: ``misplaced``: how a completion's place is checked; ``block_tracks``: the block
    knows of requests and says of each when nothing more of it comes. Otherwise ``misplaced`` does.
    Members: ``i``: the block's packets; ``rd_rsp``: the host port; ``tag``, ``state``, ``end``,
    ``again``, ``verdict``, ``fate``, ``busy``, ``busy_tag``, ``overdue``, ``denied``: see
    ``ReadTags``; ``at`` In: what is
    left of the piece of ``tag``, if ``misplaced`` asks for it; ``moved`` Out: the same behind the
    completion that begins in this cycle; a counter of each of ``COUNTERS`` Out, which wraps.
    A completion ends at a multiple of 64 bytes or with its request (PCI Express Base Specification,
    "Read Completion Boundary"), so its beats are beats of the host port.
    Errors: a request whose completion is poisoned, has another status than SC, has an error code or
    is not where it should be, ends with ``error`` when its last completion has come. A request that
    is late ends at once, with ``error``. A completion of a tag without request is dropped. A tag
    whose request has ended in another way than by its last completion in place, or by a status
    other than SC, comes into quarantine.
    Latency: 4 cycles. Throughput: a beat a cycle, and one more for a completion that has words in
    one more beat of memory than of its own. ``i.ready`` is a register. Reset: empty.
    Source: PG213, "Requester Completion Interface", for the descriptor.
    """

    def __init__(self, *, config: NicConfig, misplaced: Misplaced, block_tracks: bool):
        self._tags, self._misplaced = config.read_tags, misplaced
        self._block_tracks = block_tracks
        super().__init__(
            {
                "i": In(stream.Signature(completion_beat())),
                "rd_rsp": Out(stream.Signature(edge_read_beat(WIDTH), always_ready=True)),
                "again": Out(stream.Signature(8, always_ready=True)),
                "tag": Out(8),
                "state": In(outstanding()),
                "end": Out(1),
                "verdict": Out(stream.Signature(verdict(), always_ready=True)),
                "fate": Out(stream.Signature(fate(), always_ready=True)),
                "busy": Out(1),
                "busy_tag": Out(8),
                "overdue": In(stream.Signature(8)),
                "denied": In(stream.Signature(8)),
                "at": In(known_rest()),
                "moved": Out(stream.Signature(place(), always_ready=True)),
                **{name: Out(16) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        facts = _facts()
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
            self.end.eq(taken & ~inside & fresh.live & fresh.completed),
            self.busy.eq(packets.valid | inside),
            self.busy_tag.eq(now.tag),
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
        self._judge(m, packets.p, fresh, taken & ~inside)
        self._decide(m, kept, cut_off, taken & beat.last)
        corrupt = Signal()
        m.d.sync += corrupt.eq(taken & cut_off & now.live)
        with m.If(corrupt):
            increment(m, self.malformed)
        m.d.comb += [
            fresh_place.up.eq(head.lower_addr[2:6]),
            fresh_place.size.eq(head.words - 1),  # of the last beat, less one
            # Of any tag: that of no read is begun anew before it matters.
            self.moved.valid.eq(taken & ~inside & ~packets.p.given_up & ~packets.p.denied),
            self.moved.p.tag.eq(head.tag),
            self.moved.p.rest.low.eq((head.lower_addr[2:] + head.words) << 2),
            self.moved.p.rest.bytes.eq(head.byte_count + head.lower_addr[:2] - (head.words << 2)),
        ]
        self._answer(m, realign.o)
        return m

    def _packets(self, m: Module):
        """Beats of the block, and between its packets one of the same form for each late tag and
        for each read that was denied, whose tag is that of the host port."""
        shape = data.StructLayout({"beat": completion_beat(), "given_up": 1, "denied": 1})
        m.submodules.skid = skid = Skid(shape=shape)
        inside, expires, denies = Signal(), Signal(), Signal()
        made = Signal(rc_descriptor())
        m.d.comb += [
            expires.eq(self.overdue.valid & ~inside),
            denies.eq(self.denied.valid & ~inside & ~self.overdue.valid),
            skid.i.payload.given_up.eq(expires),
            skid.i.payload.denied.eq(denies),
            skid.i.payload.beat.eq(self.i.payload),
            skid.i.valid.eq(self.i.valid | expires | denies),
            self.i.ready.eq(skid.i.ready & ~expires & ~denies),
            self.overdue.ready.eq(skid.i.ready & expires),
            self.denied.ready.eq(skid.i.ready & denies),
            made.tag.eq(Mux(expires, self.overdue.payload, self.denied.payload)),
            made.error.eq(Mux(expires, RcError.TIMEOUT, RcError.NONE)),
        ]
        with m.If(expires | denies):
            beat = skid.i.payload.beat
            m.d.comb += [beat.head.eq(made), beat.abort.eq(0), beat.last.eq(1)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += inside.eq(~self.i.p.last)
        return skid.o

    def _judge(self, m: Module, packet, fresh, counts) -> None:
        """What becomes of a packet, by its descriptor and what is known of its tag."""
        state, head, given_up, denied = self.state, packet.beat.head, packet.given_up, packet.denied
        poison, refusal, timeout = Signal(), Signal(), Signal()
        elsewhere = Signal()  # the place is not the next one
        wrong = Signal()  # nobody can say which bytes these are
        boundary = (head.lower_addr[2:6] + head.words)[:4] == 0
        coded = head.error == RcError.POISONED
        m.d.comb += [
            poison.eq(head.poisoned | coded),
            refusal.eq(head.status != CompletionStatus.SC),
            timeout.eq((head.error == RcError.TIMEOUT) | (head.error == RcError.FLR)),
            elsewhere.eq(self._misplaced(head, state, self.at) | ~(head.completed | boundary)),
            wrong.eq(
                ~refusal
                & ~coded  # the block has found it in place
                & ((head.error != RcError.NONE) | elsewhere)
            ),
            fresh.tag.eq(self.tag),
            fresh.host.eq(Mux(denied, head.tag, state.host)),
            fresh.final.eq(state.final | denied),
            fresh.completed.eq(head.completed | timeout | denied),
            fresh.live.eq(state.live & ~denied & (state.late | ~given_up)),
            fresh.ours.eq(fresh.live | denied),
            fresh.bad.eq(state.bad | poison | refusal | (head.error != RcError.NONE) | denied),
            fresh.elsewhere.eq(elsewhere),
            fresh.astray.eq(state.astray | (wrong & ~given_up)),
            fresh.given_up.eq(given_up),
        ]
        self._late(m, packet, fresh, refusal, wrong)
        self._count(
            m,
            counts & ~denied & (fresh.live | ~(given_up | timeout)),
            unexpected=~fresh.live,
            timeouts=timeout,
            poisoned=poison,
            refused=refusal,
            malformed=(head.error != RcError.NONE) | elsewhere,
        )

    def _count(self, m: Module, counts, **causes) -> None:
        """Count a packet by the first of its ``causes`` that is so, a cycle later."""
        happens, found = Signal(), Signal(len(causes))
        m.d.sync += [happens.eq(counts), found.eq(Cat(causes.values()))]
        for n, name in enumerate(causes):
            with m.If(happens & found[n] & ~found[:n].any()):
                increment(m, getattr(self, name))

    def _late(self, m: Module, packet, fresh, refusal, wrong) -> None:
        """What a packet says of a tag in quarantine: that nothing more comes of its request
        (``frees``), or that nobody knows any more what comes (``loses``)."""
        head, tag = packet.beat.head, self.state.quarantine
        gone = Signal()  # the block has no request of this tag
        m.d.comb += gone.eq(
            (head.error == RcError.TIMEOUT)
            | (head.error == RcError.FLR)
            | (head.error == RcError.INVALID_TAG)
        )
        known = tag.held if self._block_tracks else tag.whole
        ends = head.completed & ~(gone if self._block_tracks else wrong)
        m.d.comb += [
            fresh.late.eq(
                tag.parked & known & ~self.state.live & ~packet.given_up & ~packet.denied
            ),
            fresh.frees.eq(ends | refusal),
            fresh.loses.eq(gone if self._block_tracks else wrong),
        ]

    def _decide(self, m: Module, now, cut_off, over) -> None:
        """The verdict on a packet that is ``over``, and whether its tag comes into quarantine or
        free, a cycle later. What is known ``now`` is then still that of this packet."""
        ended, cut = Signal(), Signal()
        m.d.sync += [ended.eq(over), cut.eq(cut_off)]
        over, cut_off = ended, cut
        fate, bad = self.fate.payload, now.bad | now.elsewhere | cut_off
        ends, changes, parks = Signal(), Signal(), Signal()
        m.d.comb += [
            ends.eq(now.live & now.completed & (now.final | bad)),
            # A descriptor that may be corrupt says nothing.
            changes.eq(now.late & (cut_off | now.frees | now.loses)),
            self.fate.valid.eq(over & (ends | changes)),
            fate.tag.eq(now.tag),
            fate.was.eq(now.late),
            fate.now.parked.eq(parks),
            self.verdict.valid.eq(over & now.live),
            self.verdict.p.tag.eq(now.tag),
            self.verdict.p.bad.eq(bad & ~now.completed),
            self.verdict.p.astray.eq((now.astray | cut_off) & ~now.completed),
        ]
        with m.If(now.late):
            m.d.comb += [
                parks.eq(cut_off | ~now.frees),
                fate.now.held.eq(cut_off & self._block_tracks),
            ]
        with m.Else():
            m.d.comb += [
                parks.eq(now.given_up | now.astray | cut_off),
                fate.now.held.eq(now.given_up & self._block_tracks),
                fate.now.whole.eq(now.given_up & ~now.astray),
            ]

    def _answer(self, m: Module, moved) -> None:
        """The host port's beats, and the tags whose next piece may be asked for."""
        side, closes, bad = moved.p.side, Signal(), Signal()
        m.d.comb += [
            bad.eq(side.bad | side.elsewhere),
            moved.ready.eq(1),
            closes.eq(moved.p.last & side.completed),
            self.rd_rsp.valid.eq(moved.valid & side.ours & (~bad | closes)),
            self.rd_rsp.p.tag.eq(side.host),
            self.rd_rsp.p.data.eq(moved.p.data),
            self.rd_rsp.p.last.eq(closes & (side.final | bad)),
            self.rd_rsp.p.error.eq(closes & bad),
            self.again.valid.eq(moved.valid & side.live & closes & ~bad & ~side.final),
            self.again.payload.eq(side.tag),
        ]
