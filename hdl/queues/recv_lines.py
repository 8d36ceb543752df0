"""What the lines of RecvFetch hold, and which of them may be written."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.ports.jobs import WQE_LINE_BITS, LineUse

from .lines import HeldLines

__all__ = ["RecvLines", "SinkLines", "is_sink", "sink_line", "sinks_of"]


def sinks_of(lines: int) -> int:
    """How many of ``lines`` lines are for the sinks of READs, the last ones."""
    return min(32, lines // 4)


def sink_line(asked, lines: int):
    """The line of the sink at ``asked.position`` of ``asked.queue``, one of the last of ``lines``;
    as wide as their numbers."""
    bits, low = ceil_log2(lines), ceil_log2(sinks_of(lines))
    mixed = asked.queue[1:] ^ asked.position ^ (asked.queue[0] << (low - 1))
    return Cat(mixed[:low], Const(-1, bits - low))


def is_sink(line, lines: int):
    """Whether ``line`` is one of the sinks'."""
    return line[ceil_log2(sinks_of(lines)) : ceil_log2(lines)].all()


class RecvLines(wiring.Component):
    """States of ``lines`` lines: the last ones are the sinks', the others queues' or free.

    Members, Out: ``busy`` (of the line ``asked``): a fetch into it is under way; ``good``: its WQE
    has come; ``wanted_busy``: the same as ``busy`` of the line ``wanted``; ``swept``: the line
    ``sweep`` is in the list of a queue, and no fetch into it is under way; ``quiet``: none is at
    all. ``free``: lines in no list and not busy, or soon neither; ``spare`` with ``spare_valid``:
    one of them that nobody reads. ``clearing``: not yet usable.
    In, each with its line: ``own`` takes the spare; ``release``: it is not its queue's any more (a
    fetch under way goes on, and frees it); ``issue``: a fetch begins; ``arrived``, ``arrived_good``
    it has ended. ``line_use``; ``current_valid``, ``current``: a line about to be read as well.
    ``look0``, ``look1`` with ``read0``, ``read1``: whether a line is being read, or about to be.
    Bits of a line are looked at in the same cycle (small memories of look-up tables) and change
    with the next but one. A fetch is under way when it has begun more often than it has ended,
    modulo two: so each bit has one writer. Free lines are given in the order in which they came
    back; one that is still read goes to the end of the row.
    Latency: 4 cycles from a released line to a spare. Reset: all are free, after ``lines`` cycles.
    """

    def __init__(self, *, lines: int):
        if lines < 8 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 8, not {lines!r}")
        self._lines = lines
        members = {"line_use": In(LineUse()), "current_valid": In(1), "current": In(WQE_LINE_BITS)}
        for name in ("release", "issue", "arrived"):
            members |= {name: In(1), f"{name}_line": In(WQE_LINE_BITS)}
        for name in ("asked", "wanted", "sweep", "look0", "look1"):
            members[name] = In(WQE_LINE_BITS)
        for name in ("busy", "good", "wanted_busy", "swept", "quiet", "clearing"):
            members[name] = Out(1)
        super().__init__(
            members
            | {
                "arrived_good": In(1),
                "own": In(1),
                "spare": Out(WQE_LINE_BITS),
                "spare_valid": Out(1),
                "free": Out(WQE_LINE_BITS, init=lines - sinks_of(lines)),
                "read0": Out(1),
                "read1": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        queue_lines, bits = self._lines - sinks_of(self._lines), ceil_log2(self._lines)
        clear, under_way = Signal(bits), Signal(range(self._lines + 1))
        clearing = Signal(init=1)
        m.d.comb += [self.clearing.eq(clearing), self.quiet.eq(under_way == 0)]
        m.d.sync += [
            clear.eq(clear + clearing),
            clearing.eq(clearing & (clear != self._lines - 1)),
            # From the cycle after ``issue`` on.
            under_way.eq(under_way + self.issue - self.arrived),
        ]

        def bit(name, enable, line, value):
            """A bit of each line, and how to look at it."""
            rows = memory.Memory(shape=unsigned(1), depth=self._lines, init=[])
            m.submodules[name] = rows
            port = rows.write_port()
            m.d.comb += [
                port.en.eq(enable | clearing),
                port.addr.eq(Mux(clearing, clear, line)),
                port.data.eq(value & ~clearing),
            ]

            def look(at):
                read = rows.read_port(domain="comb")
                m.d.comb += read.addr.eq(at)
                return read.data

            return look

        # What happens is noted a cycle later: who tells it decides late in its cycle, and looks at
        # that line again three cycles later at the earliest.
        release, issue, arrived, arrived_good = Signal(), Signal(), Signal(), Signal()
        release_line, issue_line, arrived_line = (
            Signal(bits, name=f"{name}_line", reset_less=True)
            for name in ("release", "issue", "arrived")
        )
        m.d.sync += [
            release.eq(self.release),
            release_line.eq(self.release_line),
            issue.eq(self.issue),
            issue_line.eq(self.issue_line),
            arrived.eq(self.arrived),
            arrived_line.eq(self.arrived_line),
            arrived_good.eq(self.arrived_good),
        ]
        begun_again, ended_again = Signal(), Signal()
        begun = bit("begun", issue, issue_line, begun_again)
        ended = bit("ended", arrived, arrived_line, ended_again)
        good = bit("good", arrived, arrived_line, arrived_good)
        owned = bit("owned", self.own | release, Mux(release, release_line, self.spare), ~release)

        def busy(line):
            return begun(line) ^ ended(line)

        freed, orphaned = Signal(), Signal()
        m.d.comb += [
            begun_again.eq(~ended(issue_line)),
            ended_again.eq(begun(arrived_line)),
            self.busy.eq(busy(self.asked)),
            self.good.eq(good(self.asked)),
            self.wanted_busy.eq(busy(self.wanted)),
            self.swept.eq(owned(self.sweep) & ~busy(self.sweep)),
            # A fetch that ends in this cycle is not under way any more.
            freed.eq(release & ~(busy(release_line) & ~(arrived & (arrived_line == release_line)))),
            orphaned.eq(arrived & ~owned(arrived_line) & ~is_sink(arrived_line, self._lines)),
        ]
        m.d.sync += self.free.eq(self.free - self.own + freed + orphaned)

        m.submodules.held = held = HeldLines(looks=3)
        hand, hand_valid, unread = Signal(bits), Signal(), Signal()
        m.d.comb += [
            held.taken.eq(self.line_use.taken),
            held.line.eq(self.line_use.line),
            held.done.eq(self.line_use.done),
            held.look0.eq(hand),
            held.look1.eq(self.look0),
            held.look2.eq(self.look1),
            unread.eq(~held.held0 & ~(self.current_valid & (hand == self.current))),
            self.read0.eq(held.held1 | (self.current_valid & (self.look0 == self.current))),
            self.read1.eq(held.held2 | (self.current_valid & (self.look1 == self.current))),
        ]

        # Free lines: those given back, and those whose fetch ended when nobody wanted it any more.
        m.submodules.back = back = StreamFifo(shape=bits, depth=self._lines)
        m.submodules.orphans = orphans = StreamFifo(shape=bits, depth=self._lines)
        offered = hand_valid & unread & ~self.spare_valid
        passed = hand_valid & ~unread & ~freed & ~clearing
        m.d.comb += [
            back.i.valid.eq(freed | passed | (clearing & (clear < queue_lines))),
            back.i.payload.eq(Mux(clearing, clear, Mux(freed, release_line, hand))),
            orphans.i.valid.eq(orphaned),
            orphans.i.payload.eq(arrived_line),
            orphans.o.ready.eq(~hand_valid),
            back.o.ready.eq(~hand_valid & ~orphans.o.valid),
        ]
        with m.If(self.own):
            m.d.sync += self.spare_valid.eq(0)
        with m.If(~hand_valid):
            m.d.sync += [
                hand.eq(Mux(orphans.o.valid, orphans.o.payload, back.o.payload)),
                hand_valid.eq(orphans.o.valid | back.o.valid),
            ]
        with m.Elif(offered | passed):
            m.d.sync += hand_valid.eq(0)
        with m.If(offered):
            m.d.sync += [self.spare.eq(hand), self.spare_valid.eq(1)]
        return m


class SinkLines(wiring.Component):
    """Which of ``sinks`` lines are valid, and which were asked for lately.

    Members: ``asked``, ``kept``: numbers of lines; ``drop``, ``touch`` (of ``asked``), ``keep`` (of
    ``kept``), ``clear`` (all), a cycle each; ``tick``: those not asked for since the last one are
    forgotten; ``valid``: of ``asked``. Latency: 1 cycle. Reset: none is.
    """

    def __init__(self, *, sinks: int):
        self._sinks, bits = sinks, ceil_log2(sinks)
        names = ("drop", "touch", "keep", "clear", "tick")
        super().__init__(
            {name: In(1) for name in names} | {"asked": In(bits), "kept": In(bits), "valid": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        valid, touched, asked, kept = (
            Signal(self._sinks, name=n) for n in ["valid", "touched", "asked", "kept"]
        )
        m.d.comb += [
            asked.eq(1 << self.asked),
            kept.eq(Mux(self.keep, 1 << self.kept, 0)),
            self.valid.eq((valid & asked).any()),
        ]
        m.d.sync += [
            valid.eq(
                Mux(self.clear, 0, valid & Mux(self.tick, touched, ~0) & ~Mux(self.drop, asked, 0))
                | kept
            ),
            touched.eq(Mux(self.tick, 0, touched) | kept | Mux(self.touch, asked, 0)),
        ]
        return m
