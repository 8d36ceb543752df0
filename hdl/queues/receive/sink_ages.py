"""Which of the sinks at hand mean anything, and which nobody has asked for lately."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram

__all__ = ["SinkAges"]


class _Age(data.Struct):
    """Whether the sink means anything, and the age in which it was last asked for."""

    valid: 1
    stamp: 2


class SinkAges(wiring.Component):
    """Keeps for each of ``sinks`` places whether it holds a sink, and since when.

    Time goes by in ages. A sink that nobody asked for during a whole age is forgotten, by a sweep
    that looks at all places, one in 3 cycles, when an age ends: before its stamp comes again.
    Members, all a cycle unless said: ``reported`` with ``begins``: a sink is written there.
    ``asked`` with ``look``: it is looked at; ``young`` 2 cycles later: it holds a sink. ``touch``:
    ``asked`` was found. ``clear``: forget all; ``clearing`` while that goes on. ``tick``: an age
    ends.
    Latency: 2 cycles. Throughput: one of ``begins`` and ``touch`` in 2 cycles. Errors: none.
    Reset: as ``clear``, which takes ``sinks`` cycles.
    """

    def __init__(self, *, sinks: int):
        self._sinks, bits = sinks, ceil_log2(sinks)
        flags = ("begins", "look", "touch", "clear", "tick")
        super().__init__(
            {name: In(1) for name in flags}
            | {"reported": In(bits), "asked": In(bits), "young": Out(1), "clearing": Out(1, init=1)}
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._sinks)
        # The place that is asked for is known late, so it is not compared with what is written.
        m.submodules.ages = ages = Ram(shape=_Age, depth=self._sinks, reads=2, earlier=(0,))
        now, cleared, touch = Signal(2), Signal(bits), Signal()
        begun, begun_place = Signal(), Signal(bits, reset_less=True)  # its age is to be written
        asked = Signal.like(self.asked)  # a cycle ago
        m.d.sync += [
            asked.eq(self.asked),
            begun.eq(self.begins),
            begun_place.eq(self.reported),
            touch.eq(self.touch),
            self.young.eq(ages.read0.row.valid & _young(now, ages.read0.row)),
        ]
        # One writer at a time.
        sweep, sweeping, looked = Signal(bits), Signal(), Signal()
        judged, old = Signal(), Signal()  # a cycle behind ``looked``, if nothing has changed
        m.d.comb += [
            ages.read0.index.eq(self.asked),
            ages.read0.enable.eq(self.look),
            ages.read1.index.eq(sweep),
            ages.read1.enable.eq(sweeping & ~looked & ~judged),
            ages.write.row.stamp.eq(now),
        ]
        m.d.sync += [
            looked.eq(ages.read1.enable),
            judged.eq(looked & ~self.begins & ~begun & ~touch),
            old.eq(ages.read1.row.valid & ~_young(now, ages.read1.row)),
        ]
        with m.If(self.clearing):
            m.d.comb += [ages.write.enable.eq(1), ages.write.index.eq(cleared)]
            m.d.sync += [cleared.eq(cleared + 1), self.clearing.eq(cleared != self._sinks - 1)]
        with m.Elif(begun | touch):
            m.d.comb += [
                ages.write.enable.eq(1),
                ages.write.index.eq(Mux(begun, begun_place, asked)),
                ages.write.row.valid.eq(1),
            ]
        with m.Elif(judged):
            m.d.comb += [ages.write.enable.eq(old), ages.write.index.eq(sweep)]
            m.d.sync += [sweep.eq(sweep + 1), sweeping.eq(sweep != self._sinks - 1)]
        with m.If(self.clear):
            m.d.sync += [self.clearing.eq(1), cleared.eq(0)]
        with m.If(self.tick):
            m.d.sync += [now.eq(now + 1), sweeping.eq(1), sweep.eq(0)]
        return m


def _young(now: Value, age: _Age) -> Value:
    """Asked for in this age or the one before."""
    return (now - age.stamp)[:2] < Const(2, 2)
