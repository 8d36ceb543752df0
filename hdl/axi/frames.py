"""Frames as AXI4-Stream."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.packet import packet_stream

from .bus import AxiStream

__all__ = ["AxiStreamIn", "AxiStreamOut"]


class AxiStreamOut(wiring.Component):
    """A packet stream as AXI4-Stream; ``tuser`` with ``tlast``: the frame must be spoiled.

    Members: ``i``, ``o``. Only TKEEP of the last transfer may have zeros, at its end.
    Latency: none. Throughput: one beat per cycle. Errors: passed on. Reset: none.
    """

    def __init__(self, *, width: int):
        super().__init__({"i": In(packet_stream(width)), "o": Out(AxiStream(width))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.o.tdata.eq(self.i.p.data),
            self.o.tkeep.eq(self.i.p.keep),
            self.o.tlast.eq(self.i.p.last),
            self.o.tuser.eq(self.i.p.error & self.i.p.last),
            self.o.tvalid.eq(self.i.valid),
            self.i.ready.eq(self.o.tready),
        ]
        return m


class AxiStreamIn(wiring.Component):
    """AXI4-Stream as a packet stream; ``tuser`` with ``tlast``: the frame is bad, as by its FCS.

    Members: ``i``, ``o``. The sender keeps to the contract of packet streams: TKEEP is contiguous,
    and all ones but with TLAST; there is no transfer without a byte.
    Latency: none. Throughput: one beat per cycle. Errors: passed on. Reset: between frames.
    """

    def __init__(self, *, width: int):
        super().__init__({"i": In(AxiStream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform):
        m = Module()
        inside = Signal()
        m.d.comb += [
            self.o.p.data.eq(self.i.tdata),
            self.o.p.keep.eq(self.i.tkeep),
            self.o.p.first.eq(~inside),
            self.o.p.last.eq(self.i.tlast),
            self.o.p.error.eq(self.i.tuser & self.i.tlast),
            self.o.valid.eq(self.i.tvalid),
            self.i.tready.eq(self.o.ready),
        ]
        with m.If(self.i.tvalid & self.i.tready):
            m.d.sync += inside.eq(~self.i.tlast)
        return m
