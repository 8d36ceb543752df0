"""What the lines of RecvFetch hold, and which of them may be written."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require, taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.ports.jobs import WQE_LINE_BITS, LineUse

from ..wqe.lines import HeldLines

__all__ = ["RecvLines", "is_refetch", "refetch_line", "refetch_lines"]


def refetch_lines(lines: int) -> int:
    """How many of ``lines`` lines are for WQEs that are fetched once more, the last ones."""
    return min(32, lines // 4)


def refetch_line(queue, head, lines: int):
    """The line of the held WQE ``head`` of virtqueue ``queue``, one of the last of ``lines``; as
    wide as their numbers."""
    bits, low = ceil_log2(lines), ceil_log2(refetch_lines(lines))
    mixed = queue[1:] ^ head ^ (queue[0] << (low - 1))
    return Cat(mixed[:low], Const(-1, bits - low))


def is_refetch(line, lines: int):
    """Whether ``line`` is one of those."""
    return line[ceil_log2(refetch_lines(lines)) : ceil_log2(lines)].all()


class _Line(data.Struct):
    """A fetch into it is under way; it is in the list of a queue; the last fetch brought a WQE."""

    busy: 1
    owned: 1
    good: 1


class RecvLines(wiring.Component):
    """States of ``lines`` lines: the last ones are Refetch's, the others queues' or free.

    Members, In, each with its line: ``own`` takes the spare; ``issue``: a fetch begins (if the line
    is a queue's, it is in its list from now on); ``release``: it is not its queue's any more (a
    fetch under way goes on, and frees it); ``arrived``, ``arrived_good``: a fetch has ended.
    ``issue`` and ``release`` come in a cycle of ``room``, one of them, so at most every other
    cycle; ``arrived`` likewise.
    ``ask`` looks at the line ``asked``; 2 cycles later, and until ``waits``, ``busy`` says whether
    a fetch into it is under way, ``good`` whether the last one brought its WQE. ``waits``: until
    ``wanted_done`` says that no fetch into the line ``wanted`` is under way. ``line_use``;
    ``current_valid``, ``current``: a line about to be read as well. ``look`` with ``read``, 2
    cycles later: whether a line is being read, or about to be.
    Out: ``swept``: the line ``sweep`` (2 cycles ago) is in the list of a queue, and no fetch into
    it is under way; ``quiet``: none is at all. ``free``: lines in no list and not busy, or soon
    neither; ``spare`` with ``spare_valid``: one of them that nobody reads. ``clearing``: not yet
    usable.
    What happens to a line is seen by looks that begin 3 cycles later, an arrival by those 4 later:
    a row is read, changed and written back, one after the other, so what happens to a line at the
    same time happens in some order. Free lines are given in the order in which they came back; one
    that is still read goes to the end of the row.
    Latency: 6 cycles from a released line to a spare. Reset: all are free, after ``lines`` cycles.
    """

    def __init__(self, *, lines: int):
        if lines < 8 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 8, not {lines!r}")
        self._lines = lines
        members = {"line_use": In(LineUse()), "current_valid": In(1), "current": In(WQE_LINE_BITS)}
        for name in ("release", "issue", "arrived"):
            members |= {name: In(1), f"{name}_line": In(WQE_LINE_BITS)}
        for name in ("asked", "wanted", "sweep", "look"):
            members[name] = In(WQE_LINE_BITS)
        for name in ("busy", "good", "wanted_done", "swept", "quiet", "clearing"):
            members[name] = Out(1)
        super().__init__(
            members
            | {
                "arrived_good": In(1),
                "own": In(1),
                "ask": In(1),
                "waits": In(1),
                "spare": Out(WQE_LINE_BITS),
                "spare_valid": Out(1),
                "room": Out(1),
                "free": Out(WQE_LINE_BITS, init=lines - refetch_lines(lines)),
                "read": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        queue_lines, bits = self._lines - refetch_lines(self._lines), ceil_log2(self._lines)
        # A look's line comes late, so there is no time to compare it with the one that is written.
        m.submodules.states = states = Ram(shape=_Line, depth=self._lines, reads=3, earlier=(1,))
        clear, under_way = Signal(bits), Signal(range(self._lines + 1))
        clearing = Signal(init=1)
        begun, gone, owned = Signal(), Signal(), Signal()  # what came a cycle ago
        m.d.comb += [self.clearing.eq(clearing), self.quiet.eq(under_way == 0)]
        m.d.sync += [
            clear.eq(clear + clearing),
            clearing.eq(clearing & (clear != self._lines - 1)),
            # From the second cycle after ``issue`` on.
            under_way.eq(under_way + begun - gone),
            begun.eq(self.issue),
            gone.eq(self.arrived),
            owned.eq(self.own),
        ]

        # What happens: what the machines do first, an arrival in its gaps.
        event, event_release, event_line = Signal(), Signal(), Signal(bits, reset_less=True)
        m.d.comb += self.room.eq(~event)
        ended, ended_good, ended_line = Signal(), Signal(), Signal(bits, reset_less=True)
        m.d.sync += [
            event.eq(self.issue | self.release),
            event_release.eq(self.release),
            event_line.eq(Mux(self.release, self.release_line, self.issue_line)),
            ended.eq(self.arrived | (ended & event)),
        ]
        with m.If(self.arrived):
            m.d.sync += [ended_good.eq(self.arrived_good), ended_line.eq(self.arrived_line)]
        change, issue, release, arrive, good = (Signal() for _ in range(5))
        place, line = Signal(bits), Signal(bits, reset_less=True)
        m.d.comb += [
            place.eq(Mux(event, event_line, ended_line)),
            states.read0.index.eq(place),
            states.read0.enable.eq(1),
        ]
        m.d.sync += [
            change.eq(event | ended),
            issue.eq(event & ~event_release),
            release.eq(event & event_release),
            arrive.eq(~event & ended),
            good.eq(ended_good),
            line.eq(place),
        ]
        row, changed = states.read0.row, Signal(_Line)
        m.d.comb += [
            changed.busy.eq(issue | (row.busy & ~arrive)),
            changed.owned.eq(issue | (row.owned & ~release)),
            changed.good.eq(Mux(arrive, good, row.good)),
            states.write.enable.eq(change | clearing),
            states.write.index.eq(Mux(clearing, clear, line)),
            states.write.row.eq(Mux(clearing, 0, changed)),
        ]
        freed, freed_line = Signal(), Signal(bits, reset_less=True)
        again = is_refetch(line, self._lines)
        m.d.sync += [
            freed.eq((release & ~row.busy) | (arrive & ~row.owned & ~again)),
            freed_line.eq(line),
            self.free.eq(self.free - owned + freed),
        ]

        # Looks.
        looked, swept, since = states.read1, states.read2, Signal(4)
        m.d.comb += [
            looked.index.eq(Mux(self.ask, self.asked, self.wanted)),
            looked.enable.eq(self.ask | self.waits),
            swept.index.eq(self.sweep),
            swept.enable.eq(1),
            # A fetch that began in the cycle before ``waits`` has been seen by now.
            self.wanted_done.eq(self.waits & since[3] & ~self.busy),
        ]
        m.d.sync += [
            self.busy.eq(looked.row.busy),
            self.good.eq(looked.row.good),
            self.swept.eq(swept.row.owned & ~swept.row.busy),
            since.eq(Mux(self.waits, Cat(1, since), 0)),
        ]

        m.submodules.held = held = HeldLines(looks=2)
        # The free line in hand; whether somebody still reads it, which it does not begin again, is
        # judged in a cycle of its own.
        hand, hand_valid, unread, judged = Signal(bits), Signal(), Signal(), Signal()
        look = Signal(WQE_LINE_BITS, reset_less=True)
        m.d.comb += [
            held.taken.eq(self.line_use.taken),
            held.line.eq(self.line_use.line),
            held.done.eq(self.line_use.done),
            held.look0.eq(hand),
            held.look1.eq(look),
        ]
        m.d.sync += unread.eq(~held.held0 & ~(self.current_valid & (hand == self.current)))
        m.d.sync += look.eq(self.look)
        m.d.sync += self.read.eq(held.held1 | (self.current_valid & (look == self.current)))

        # Free lines.
        m.submodules.back = back = StreamFifo(shape=bits, depth=self._lines)
        offered = judged & unread & ~self.spare_valid
        passed = judged & ~unread & ~freed & ~clearing
        m.d.sync += judged.eq(hand_valid & ~(offered | passed))
        m.d.comb += [
            back.i.valid.eq(freed | passed | (clearing & (clear < queue_lines))),
            back.i.payload.eq(Mux(clearing, clear, Mux(freed, freed_line, hand))),
            back.o.ready.eq(~hand_valid),
        ]
        with m.If(self.own):
            m.d.sync += self.spare_valid.eq(0)
        with m.If(~hand_valid):
            m.d.sync += [hand.eq(back.o.payload), hand_valid.eq(back.o.valid)]
        with m.Elif(offered | passed):
            m.d.sync += hand_valid.eq(0)
        with m.If(offered):
            m.d.sync += [self.spare.eq(hand), self.spare_valid.eq(1)]
        taken_at_once(m, platform, back.i, "there is room for each free line")
        self._contract(m, platform, (ended & event, gone & ~begun & (under_way == 0), owned))
        return m

    def _contract(self, m: Module, platform, now: tuple) -> None:
        """``now``: an arrival waits; a fetch ends that has not begun; a free line was taken."""
        waits, unknown, owned = now
        comes, both = self.issue | self.release, self.issue & self.release
        require(m, platform, ~comes | (self.room & ~both), "one at a time is noted")
        require(m, platform, ~(self.arrived & waits), "each arrival is noted")
        require(m, platform, ~unknown, "no fetch ends that has not begun")
        require(m, platform, ~owned | (self.free != 0), "no line is taken when none is free")
