"""Register slices for a stream: which of ``valid`` and ``ready`` they cut, and at what cost."""

from amaranth.hdl import Module, Mux, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Register", "Skid", "Stage"]


class _Slice(wiring.Component):
    """A stream of ``shape`` from ``i`` to ``o``."""

    def __init__(self, *, shape):
        self._shape = shape
        beats = stream.Signature(shape)
        super().__init__({"i": In(beats), "o": Out(beats)})


class Skid(_Slice):
    """Passes a stream through two registers, so that neither direction is combinational.

    Latency: 1 cycle. Throughput: one beat per cycle. Reset: empty.
    """

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self._shape).width
        front, spare = Signal(width, reset_less=True), Signal(width, reset_less=True)
        front_valid, spare_valid = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~spare_valid),
            self.o.valid.eq(front_valid),
            self.o.payload.eq(front),
        ]
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.i.payload)
        # ``ready`` settles late: as one function each, without enable and reset in front of them.
        stays = front_valid & ~self.o.ready
        m.d.sync += [
            front_valid.eq(stays | spare_valid | self.i.valid),
            spare_valid.eq(stays & (spare_valid | self.i.valid)),
        ]
        leaves = self.o.ready | ~front_valid
        with m.If(leaves):
            m.d.sync += front.eq(Mux(spare_valid, spare, self.i.payload))
        return m


class Register(_Slice):
    """Passes a stream through one register, so that neither direction is combinational.

    Latency: 1 cycle. Throughput: a beat every other cycle, for half of what ``Skid`` costs.
    Reset: empty.
    """

    def elaborate(self, platform):
        m = Module()
        held, full = Signal(Shape.cast(self._shape).width, reset_less=True), Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            self.o.valid.eq(full),
            self.o.payload.eq(held),
        ]
        with m.If(~full):
            m.d.sync += [held.eq(self.i.payload), full.eq(self.i.valid)]
        with m.Elif(self.o.ready):
            m.d.sync += full.eq(0)
        return m


class Stage(_Slice):
    """Passes a stream through one register; ``ready`` passes through as it is.

    Latency: 1 cycle. Throughput: one beat per cycle. Reset: empty.
    """

    def elaborate(self, platform):
        m = Module()
        held = Signal(Shape.cast(self._shape).width, reset_less=True)
        m.d.comb += [self.i.ready.eq(~self.o.valid | self.o.ready), self.o.payload.eq(held)]
        with m.If(self.i.ready):
            m.d.sync += [held.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        return m
