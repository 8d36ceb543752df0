"""Frames of two sources on one way, each source with its share of it."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.packet import packet_stream

__all__ = ["FrameMerge"]

#: Bits of the beats by which one source is ahead: more than those of the longest frame.
LEAD_BITS = 12


class FrameMerge(wiring.Component):
    """Whole frames of ``i0`` and of ``i1``, one after the other.

    While both wait, the one goes that has had fewer beats since both began to wait: each gets half
    of the way, however long its frames are (deficit round robin, Shreedhar and Varghese, 1995, with
    one frame as the quantum). What one does not use the other one has.
    Parameters: width in bits. Members: ``i0``, ``i1``, ``o``.
    Latency: 0 cycles, 1 when the turn changes while nothing passes. Throughput: one beat per cycle;
    ``ready`` follows ``o.ready``. Errors: ``error`` passes. Reset: between frames.
    """

    def __init__(self, *, width: int):
        self._width = width
        packets = packet_stream(width)
        super().__init__({"i0": In(packets), "i1": In(packets), "o": Out(packets)})

    def elaborate(self, platform):
        m = Module()
        turn, inside = Signal(), Signal()
        lead, after = Signal(signed(LEAD_BITS)), Signal(signed(LEAD_BITS))  # of ``i0``
        passes, both = Signal(), Signal()
        for number, source in enumerate((self.i0, self.i1)):
            with m.If(turn == number):
                m.d.comb += [
                    self.o.valid.eq(source.valid),
                    self.o.payload.eq(source.payload),
                    source.ready.eq(self.o.ready),
                ]
        m.d.comb += [
            passes.eq(self.o.valid & self.o.ready),
            both.eq(self.i0.valid & self.i1.valid),
            after.eq(lead),
        ]
        limit = (1 << (LEAD_BITS - 1)) - 1
        with m.If(passes & both):
            with m.If(turn):
                m.d.comb += after.eq(Mux(lead == -limit, lead, lead - 1))
            with m.Else():
                m.d.comb += after.eq(Mux(lead == limit, lead, lead + 1))
        m.d.sync += lead.eq(after)
        with m.If(passes):
            m.d.sync += inside.eq(~self.o.p.last)
        with m.If(Mux(passes, self.o.p.last, ~inside & ~self.o.valid)):
            # At a last beat its own source counts as waiting: it tells when it does not.
            with m.If(both):
                m.d.sync += turn.eq(after > 0)
            with m.Elif(self.i0.valid | self.i1.valid):
                m.d.sync += turn.eq(self.i1.valid)
            with m.If(~both):
                m.d.sync += lead.eq(0)
        return m
