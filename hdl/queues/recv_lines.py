"""What the lines of RecvFetch hold, and which of them may be written."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.ports.jobs import LineUse

from .lines import HeldLines

__all__ = ["RecvLines", "SinkLines", "sink_line"]


def sink_line(asked, bits: int):
    """The line of the sink at ``asked.position`` of ``asked.queue``, of the last quarter of
    ``2**bits`` lines; ``bits`` wide."""
    mixed = asked.queue[1:] ^ asked.position ^ (asked.queue[0] << (bits - 3))
    return Cat(mixed[: bits - 2], Const(3, 2))


class RecvLines(wiring.Component):
    """States of ``lines`` lines: the last quarter are the sinks', the others queues' or free.

    Members, Out: ``owned`` (a bit for each line): in the list of a queue; ``busy``: a fetch into it
    is under way; ``good``: its WQE has come. ``free``: lines that are neither owned nor busy, or
    none of both soon; ``spare`` with ``spare_valid``: one of them that nobody reads.
    In, each with its line: ``own`` takes the spare; ``release``: it is not its queue's any more (a
    fetch under way goes on, and frees it); ``issue``: a fetch begins; ``arrived``, ``arrived_good``
    it has ended. ``line_use``; ``current_valid``, ``current``: a line about to be read as well.
    ``look`` with ``read``: whether a line is being read, or about to be.
    Latency: 1 cycle; a spare is looked for at a line a cycle. Reset: all are free.
    """

    def __init__(self, *, lines: int):
        if lines < 8 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 8, not {lines!r}")
        self._lines = lines
        members = {"line_use": In(LineUse()), "current_valid": In(1), "current": In(8)}
        for name in ("release", "issue", "arrived"):
            members |= {name: In(1), f"{name}_line": In(8)}
        super().__init__(
            members
            | {
                "arrived_good": In(1),
                "own": In(1),
                "spare": Out(8),
                "spare_valid": Out(1),
                "free": Out(8, init=3 * lines // 4),
                "owned": Out(lines, init=((1 << lines // 4) - 1) << (3 * lines // 4)),
                "busy": Out(lines),
                "good": Out(lines),
                "look": In(8),
                "read": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits, queues = ceil_log2(self._lines), 3 * self._lines // 4

        def one(signal, line):
            return signal.bit_select(line[:bits], 1)

        m.submodules.held = held = HeldLines(looks=2)
        hand = Signal(8)  # goes round
        m.d.comb += [
            held.taken.eq(self.line_use.taken),
            held.line.eq(self.line_use.line),
            held.done.eq(self.line_use.done),
            held.look0.eq(hand),
            held.look1.eq(self.look),
            self.read.eq(held.held1 | (self.current_valid & (self.look == self.current))),
        ]
        unused = ~one(self.owned, hand) & ~one(self.busy, hand)
        with m.If(self.own):
            m.d.sync += [one(self.owned, self.spare).eq(1), self.spare_valid.eq(0)]
        with m.If(~self.spare_valid):
            m.d.sync += [
                hand.eq(Mux(hand == queues - 1, 0, hand + 1)),
                self.spare.eq(hand),
                self.spare_valid.eq(
                    unused & ~held.held0 & ~(self.current_valid & (hand == self.current))
                ),
            ]
        freed, ended = Signal(), Signal()
        m.d.comb += [
            # A fetch that ends in this cycle is not under way any more.
            freed.eq(
                self.release
                & ~(
                    one(self.busy, self.release_line)
                    & ~(self.arrived & (self.arrived_line == self.release_line))
                )
            ),
            ended.eq(self.arrived & ~one(self.owned, self.arrived_line)),
        ]
        m.d.sync += self.free.eq(self.free - self.own + freed + ended)
        with m.If(self.arrived):
            m.d.sync += [
                one(self.busy, self.arrived_line).eq(0),
                one(self.good, self.arrived_line).eq(self.arrived_good),
            ]
        with m.If(self.release):
            m.d.sync += one(self.owned, self.release_line).eq(0)
        with m.If(self.issue):
            m.d.sync += [
                one(self.busy, self.issue_line).eq(1),
                one(self.good, self.issue_line).eq(0),
            ]
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
