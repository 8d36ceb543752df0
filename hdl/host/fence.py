"""Between the card and its host port: keeps back what a function must not do any more."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.ports.host import edge_read_beat, edge_read_request, edge_write_beat
from hdl.ports.numbers import of_function

__all__ = ["Fence"]


class Fence(wiring.Component):
    """Fails reads and drops writes of the functions that are ``fenced``; others pass.

    After a function-level reset the rooms may still hold work of the function's previous owner,
    until the device reset is over. The host must not see any of it (PCI Express Base
    Specification, "Function Level Reset"), and the rooms must not wait for what never comes.

    Members: ``reads``, ``beats``, ``writes``: of the engines, as in ``HostPort``; ``rd_req``,
    ``rd_rsp``, ``wr``: the card's edge. ``fenced`` In, ``settled`` Out: a bit for each function
    with a driver (``NicConfig.driven``); ``settled``: nothing of a fenced function leaves any more.
    A read of a fenced function gets a beat with ``error``, in the first cycle without a beat of the
    host; a second one waits for that, and so does what is behind it. A burst that the host has
    seen, and a request that it has been offered, still pass.
    Latency: none. Throughput: that of the port; a failed read takes 2 cycles. Errors: none, what
    is kept back is counted nowhere: its owner is gone. Reset: nothing is kept back.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        requests = stream.Signature(edge_read_request())
        beats = stream.Signature(edge_read_beat(config.width), always_ready=True)
        writes = stream.Signature(edge_write_beat(config.width))
        super().__init__(
            {
                "reads": In(requests),
                "beats": Out(beats),
                "writes": In(writes),
                "rd_req": Out(requests),
                "rd_rsp": In(beats),
                "wr": Out(writes),
                "fenced": In(config.driven),
                "settled": Out(config.driven),
            }
        )

    def elaborate(self, platform):
        m = Module()
        busy = self._reads(m) | self._writes(m)
        m.d.sync += self.settled.eq(
            self.fenced & (self.settled | (~busy).replicate(len(self.fenced)))
        )
        return m

    def _reads(self, m: Module) -> Signal:
        """Requests, and beats. Returns whether the host has been offered a request that it has not
        taken."""
        shown, fails = Signal(), Signal()
        failed, tag = Signal(), Signal.like(self.reads.p.tag, reset_less=True)
        m.d.comb += [
            fails.eq(of_function(self._config, self.fenced, self.reads.p.function) & ~shown),
            self.rd_req.payload.eq(self.reads.payload),
            self.rd_req.valid.eq(self.reads.valid & ~fails),
            self.reads.ready.eq(Mux(fails, ~failed, self.rd_req.ready)),
            self.beats.payload.eq(self.rd_rsp.payload),
            self.beats.valid.eq(self.rd_rsp.valid | failed),
        ]
        m.d.sync += shown.eq(self.rd_req.valid & ~self.rd_req.ready)
        with m.If(~self.rd_rsp.valid):
            m.d.comb += [
                self.beats.p.tag.eq(tag),
                self.beats.p.last.eq(1),
                self.beats.p.error.eq(1),
            ]
            m.d.sync += failed.eq(0)
        with m.If(self.reads.valid & fails & ~failed):
            m.d.sync += [failed.eq(1), tag.eq(self.reads.p.tag)]
        return shown

    def _writes(self, m: Module) -> Signal:
        """Bursts, each whole or not at all. Returns whether the host has been offered the beginning
        of one whose end it has not taken."""
        inside, shown, drops, dropping = Signal(), Signal(), Signal(), Signal()
        begins = of_function(self._config, self.fenced, self.writes.p.function) & ~shown
        m.d.comb += [
            drops.eq(Mux(inside, dropping, begins)),
            self.wr.payload.eq(self.writes.payload),
            self.wr.valid.eq(self.writes.valid & ~drops),
            self.writes.ready.eq(self.wr.ready | drops),
        ]
        m.d.sync += shown.eq(self.wr.valid & ~self.wr.ready)
        with m.If(self.writes.valid & self.writes.ready):
            m.d.sync += [inside.eq(~self.writes.p.last), dropping.eq(drops)]
        return shown | (inside & ~dropping)
