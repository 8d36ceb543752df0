"""Guards between the MAC and rooms that a device reset stops in the middle of a frame."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.skid import Skid
from hdl.ports.packet import packet_beat, packet_stream

__all__ = ["RxGuard", "TxGuard"]


class TxGuard(wiring.Component):
    """Passes frames on; one that ``source_reset`` cuts off ends with ``error``: spoil it.

    Parameters: width in bits. Members: ``i`` from the core, ``o`` to the MAC; ``source_reset``: the
    core is in reset, for at least one cycle; what ``i`` shows meanwhile is ignored.
    Latency: 1 cycle. Throughput: one beat per cycle. Errors: a cut frame gets one byte more and
    ``error``, however long the MAC takes; counted in ``cut_frames``.
    Reset: between frames. It is not reset itself by a device reset.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "source_reset": In(1),
                "cut_frames": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = output = Skid(shape=packet_beat(self._width))
        wiring.connect(m, output.o, wiring.flipped(self.o))
        inside = Signal()  # the last beat passed on was not the end of its frame
        owed = Signal()  # the MAC may take the end only when the core is out of reset again
        with m.If(self.source_reset | owed):
            m.d.comb += [
                output.i.valid.eq(inside),
                output.i.p.keep.eq(1),
                output.i.p.last.eq(1),
                output.i.p.error.eq(1),
            ]
            m.d.sync += owed.eq(inside & ~output.i.ready)
            with m.If(inside & output.i.ready):
                m.d.sync += self.cut_frames.eq(self.cut_frames + 1)
        with m.Else():
            m.d.comb += [
                output.i.valid.eq(self.i.valid),
                output.i.payload.eq(self.i.payload),
                self.i.ready.eq(output.i.ready),
            ]
        with m.If(output.i.valid & output.i.ready):
            m.d.sync += inside.eq(~output.i.p.last)
        return m


class RxGuard(wiring.Component):
    """Drops beats until the first one of a frame: the rest of a frame that a reset has cut.

    Parameters: width in bits. Members: ``i`` from the MAC, ``o`` to the core.
    Latency: 1 cycle. Throughput: one beat per cycle. Errors: none.
    Reset: with the core; then waits for a first beat.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = output = Skid(shape=packet_beat(self._width))
        wiring.connect(m, output.o, wiring.flipped(self.o))
        inside, passes = Signal(), Signal()
        m.d.comb += [
            passes.eq(inside | self.i.p.first),
            output.i.valid.eq(self.i.valid & passes),
            output.i.payload.eq(self.i.payload),
            self.i.ready.eq(output.i.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += inside.eq(passes & ~self.i.p.last)
        return m
