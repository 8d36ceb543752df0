"""Two read engines on one card edge."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.host import edge_read_beat, edge_read_request

__all__ = ["ReadMerge"]


class ReadMerge(wiring.Component):
    """Merges the requests of two engines, and sends completions back by their tag's highest bit.

    Each engine returns its data in order. There is no order between the engines, so the few bytes
    that a room waits for do not queue behind payload. The engine of ``req0`` has the lower half of
    ``config.read_tags``, that of ``req1`` the upper half.
    Latency: none: requests come out of the engines' register slices. Throughput: one request and
    one completion beat per cycle, requests in turn. Reset: nothing is offered.
    """

    def __init__(self, *, config: NicConfig):
        self._upper = ceil_log2(config.read_tags) - 1
        requests = stream.Signature(edge_read_request())
        beats = stream.Signature(edge_read_beat(config.width), always_ready=True)
        super().__init__(
            {
                "req0": In(requests),
                "req1": In(requests),
                "rsp0": Out(beats),
                "rsp1": Out(beats),
                "rd_req": Out(requests),
                "rd_rsp": In(beats),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # The engines offer from registers. A request that the host has seen stays.
        last, seen, chosen = Signal(), Signal(), Signal()
        m.d.comb += [
            chosen.eq(Mux(seen, last, Mux(last, ~self.req0.valid, self.req1.valid))),
            self.rd_req.valid.eq(self.req0.valid | self.req1.valid),
            self.rd_req.payload.eq(Mux(chosen, self.req1.payload, self.req0.payload)),
            self.req0.ready.eq(self.rd_req.ready & ~chosen),
            self.req1.ready.eq(self.rd_req.ready & chosen),
        ]
        with m.If(self.rd_req.valid):
            m.d.sync += [last.eq(chosen), seen.eq(~self.rd_req.ready)]
        upper = self.rd_rsp.payload.tag[self._upper]
        m.d.comb += [
            self.rsp0.payload.eq(self.rd_rsp.payload),
            self.rsp1.payload.eq(self.rd_rsp.payload),
            self.rsp0.valid.eq(self.rd_rsp.valid & ~upper),
            self.rsp1.valid.eq(self.rd_rsp.valid & upper),
        ]
        return m
