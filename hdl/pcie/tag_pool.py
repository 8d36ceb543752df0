"""Which tags may be used: those of no request that anything could still answer."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import taken_at_once
from hdl.common.count import increment
from hdl.common.fifo import StreamFifo

__all__ = ["PLAIN_TAGS", "QUARANTINE", "TagPool", "fate", "quarantined"]

#: Tags that a function may use before the host allows more (PCI Express Base Specification,
#: "Extended Tag Field Enable").
PLAIN_TAGS = 32
#: Cycles of the quarantine: 68.7 s at 250 MHz. No requester waits longer than 64 s for a completion
#: (PCI Express Base Specification, "Device Control 2 Register", Completion Timeout Value), so no
#: host may be later than that with one.
QUARANTINE = 1 << 34


def quarantined() -> data.StructLayout:
    """What is known of a tag whose read was given up. ``parked``: it is in quarantine; ``held``:
    the block still has its request; ``whole``: what has come of its completions since is in
    place, so that the last one of them can be known."""
    return data.StructLayout({"parked": 1, "held": 1, "whole": 1})


def fate() -> data.StructLayout:
    """What becomes of ``tag``: it is ``now`` in quarantine, or free; ``was``: it was in quarantine
    before."""
    return data.StructLayout({"tag": 8, "now": quarantined(), "was": 1})


class TagPool(wiring.Component):
    """Gives out tags; keeps those in quarantine whose completions may still come.

    A completion says nothing of its request but the tag. If a tag were used again while a
    completion of its last request is on its way, that one's data would be taken for those of the
    new request. A tag leaves the quarantine when its late completions have come whole, which
    ``fate`` says, or when no completion can live that long. A tag whose request the block still
    holds stays, if the block gives up none.

    Parameters: ``tags``: from 0 on; ``quarantine``: cycles, at the latest it lasts twice as many.
    Members: ``o``: a free tag, below ``PLAIN_TAGS`` if ``plain`` In; ``none`` Out: no tag
    that ``plain`` allows is free or in use; ``fate`` In: what becomes of a tag; ``expires`` In:
    the block gives up what it holds sooner than a quarantine lasts; ``tag`` In and ``state`` Out:
    what is known of a tag in the same cycle; ``busy``, ``busy_tag`` In: that tag's fate is being
    decided, so it leaves the quarantine by nothing else;
    ``entered``, ``left`` Out: tags that came into quarantine and left it, which wrap.
    Latency: 4 cycles until a free tag is given out again; the one that has been free for longest
    is the next. Throughput: a tag a cycle. Errors: none.
    Reset: each tag is free, after ``tags`` cycles: the block is reset with the card, and the link
    was down.
    Source: PCI Express Base Specification, "Completion Timeout Mechanism", and the implementation
    note "Avoiding Data Corruption From Stale Completions".
    """

    def __init__(self, *, tags: int, quarantine: int = QUARANTINE):
        if not 2 <= tags <= 256 or tags & (tags - 1):
            raise ValueError(f"Tags must be a power of two from 2 to 256, not {tags!r}")
        if quarantine < 8 * tags:
            raise ValueError(f"Quarantine must be at least 8 cycles a tag, not {quarantine!r}")
        self._tags, self._quarantine = tags, quarantine
        super().__init__(
            {
                "plain": In(1),
                "o": Out(stream.Signature(8)),
                "none": Out(1),
                "fate": In(stream.Signature(fate(), always_ready=True)),
                "expires": In(1),
                "tag": In(8),
                "busy": In(1),
                "busy_tag": In(8),
                "state": Out(quarantined()),
                "entered": Out(16),
                "left": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ending, ends = self.fate.payload, self.fate.valid
        clear, cleared = Signal(ceil_log2(self._tags) + 1), Signal()
        m.d.comb += cleared.eq(clear[-1])
        with m.If(~cleared):
            m.d.sync += clear.eq(clear + 1)
        expired, scanned = self._quarantines(m, ending, ends, clear, cleared)

        comes, tag = Signal(), Signal(8)  # a tag is free from now on
        m.d.sync += [
            comes.eq(~cleared | expired | (ends & ~ending.now.parked)),
            tag.eq(Mux(cleared, Mux(expired, scanned, ending.tag), clear)),
        ]
        self._give(m, platform, comes, tag)
        goes_in, goes_out, counted = Signal(), Signal(), Signal(8)
        m.d.sync += [
            goes_in.eq(ends & ending.now.parked & ~ending.was),
            goes_out.eq(expired | (ends & ~ending.now.parked & ending.was)),
            counted.eq(Mux(expired, scanned, ending.tag)),
        ]
        with m.If(goes_in):
            increment(m, self.entered)
        with m.If(goes_out):
            increment(m, self.left)
        self._count(m, goes_in, goes_out, tag=counted)
        return m

    def _quarantines(self, m: Module, ending, ends, clear, cleared):
        """The tags in quarantine, and since when; returns whether one leaves it, and which."""
        row = data.StructLayout({"now": quarantined(), "since": 2})
        m.submodules.rows = rows = memory.Memory(shape=row, depth=self._tags, init=[])
        write, look = rows.write_port(), rows.read_port(domain="comb")
        scan = rows.read_port(domain="comb")
        time = self._clock(m)
        # One tag is looked at in each cycle, and leaves in the next one.
        scanning, scanned, old = Signal(range(self._tags)), Signal(range(self._tags)), Signal()
        expired, age = Signal(), Signal(2)
        with m.If(~ends):
            m.d.sync += [scanning.eq(scanning + 1), scanned.eq(scanning)]
        m.d.sync += old.eq(
            cleared
            & ~ends  # the table does not change meanwhile
            & scan.data.now.parked
            & age[1]
            & (~scan.data.now.held | self.expires)
        )
        m.d.comb += [
            scan.addr.eq(scanning),
            age.eq(time - scan.data.since),
            # The table has one port to write.
            expired.eq(old & ~ends & ~(self.busy & (self.busy_tag == scanned))),
            write.en.eq(~cleared | ends | expired),
            write.addr.eq(Mux(cleared, Mux(ends, ending.tag, scanned), clear)),
            write.data.since.eq(time),
            look.addr.eq(self.tag),
            self.state.eq(look.data.now),
        ]
        with m.If(cleared & ends):
            m.d.comb += write.data.now.eq(ending.now)
        with m.If(ends & (ending.tag == self.tag)):
            m.d.comb += self.state.eq(ending.now)
        return expired, scanned

    def _clock(self, m: Module) -> Signal:
        """Quarantines since the reset, modulo four: in two counters, for one is too long."""
        short = min(self._quarantine, 1 << 16)
        long = -(-self._quarantine // short)
        fast, over, time = Signal(range(short), init=short - 1), Signal(), Signal(2)
        m.d.sync += [fast.eq(fast - 1), over.eq(fast == 0)]
        with m.If(fast == 0):
            m.d.sync += fast.eq(short - 1)
        if long == 1:
            m.d.sync += time.eq(time + over)
            return time
        slow, last = Signal(range(long), init=long - 1), Signal()
        m.d.sync += [last.eq(slow == 0), time.eq(time + (over & last))]
        with m.If(over):
            m.d.sync += slow.eq(Mux(last, long - 1, slow - 1))
        return time

    def _give(self, m: Module, platform, comes, tag) -> None:
        """The free tags, in two queues: those that each function may use, and the others."""
        plain = min(self._tags, PLAIN_TAGS)
        m.submodules.plains = plains = StreamFifo(shape=8, depth=plain)
        m.d.comb += [
            plains.i.payload.eq(tag),
            plains.i.valid.eq(comes & (tag < plain)),
            self.o.payload.eq(plains.o.payload),
            self.o.valid.eq(plains.o.valid),
            plains.o.ready.eq(self.o.ready),
        ]
        taken_at_once(m, platform, plains.i, "no tag comes free that is free already")
        if self._tags == plain:
            return
        # A power of two that has room for all of them.
        m.submodules.others = others = StreamFifo(shape=8, depth=1 << ceil_log2(self._tags - plain))
        taken_at_once(m, platform, others.i, "no tag comes free that is free already")
        chosen = Signal()
        m.d.comb += [
            others.i.payload.eq(tag),
            others.i.valid.eq(comes & (tag >= plain)),
            chosen.eq(others.o.valid & ~self.plain),
            others.o.ready.eq(self.o.ready & chosen),
            plains.o.ready.eq(self.o.ready & ~chosen),
        ]
        with m.If(chosen):
            m.d.comb += [self.o.payload.eq(others.o.payload), self.o.valid.eq(1)]

    def _count(self, m: Module, goes_in, goes_out, *, tag) -> None:
        """How many are in quarantine, and so whether there is any other."""
        plain = min(self._tags, PLAIN_TAGS)
        all_plain, all_others = Signal(), Signal(init=self._tags == plain)
        kinds = [(all_plain, plain, tag < plain)]
        if self._tags > plain:
            kinds.append((all_others, self._tags - plain, tag >= plain))
        for every, most, of_kind in kinds:
            inside = Signal(range(most + 1), name="inside")
            with m.If(goes_in & of_kind):
                m.d.sync += inside.eq(inside + 1)
            with m.If(goes_out & of_kind):
                m.d.sync += inside.eq(inside - 1)
            m.d.sync += every.eq(inside == most)
        m.d.comb += self.none.eq(all_plain & (all_others | self.plain))
