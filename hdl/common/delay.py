"""Fixed delays: registers for bits, a ring in RAM for wide rows."""

from __future__ import annotations

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .ram import Ram

__all__ = ["Delay", "delayed"]


def delayed(m: Module, value: Value, cycles: int, *, name: str) -> Value:
    """``value`` as it was ``cycles`` ago, through registers without reset."""
    for stage in range(cycles):
        register = Signal(len(value), name=f"{name}_{stage + 1}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


class Delay(wiring.Component):
    """``o`` is what ``i`` was ``cycles`` ago, if ``i_valid`` was high then; otherwise undefined.

    The ring rests when no such row is in it. Latency: ``cycles``, at least 2. Reset: rows in
    flight are lost; their valid bits travel in registers. ``block``: see ``Ram``.
    """

    def __init__(self, *, shape, cycles: int, block: bool = False):
        if cycles < 2:
            raise ValueError(f"Cycles must be at least 2, not {cycles!r}")
        self._shape, self._cycles, self._block = shape, cycles, block
        super().__init__({"i": In(shape), "i_valid": In(1), "o": Out(shape)})

    def elaborate(self, platform):
        m = Module()
        index = ceil_log2(self._cycles)
        # The row read was written 1 to cycles - 1 cycles ago: never the one written now.
        width = Shape.cast(self._shape).width
        m.submodules.ring = ring = Ram(
            shape=width, depth=1 << index, forward=False, block=self._block
        )
        at, left = Signal(index), Signal(range(self._cycles + 1))
        with m.If(self.i_valid):
            m.d.sync += left.eq(self._cycles)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(self.i_valid | (left != 0)):
            m.d.sync += at.eq(at + 1)
        m.d.comb += [
            ring.write.index.eq(at),
            ring.write.row.eq(self.i),
            ring.write.enable.eq(1),
            # Written at t, read at t + cycles - 1, there one cycle later.
            ring.read0.index.eq(at - (self._cycles - 1)),
            ring.read0.enable.eq(1),
            Value.cast(self.o).eq(ring.read0.row),
        ]
        return m
