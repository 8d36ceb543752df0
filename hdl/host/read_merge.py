"""Two read engines on one card edge."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.arbiter import StreamArbiter
from hdl.config import NicConfig
from hdl.ports.host import edge_read_beat, edge_read_request

__all__ = ["ReadMerge"]


class ReadMerge(wiring.Component):
    """Merges the requests of two engines, and sends completions back by their tag's highest bit.

    Each engine returns its data in order; between them there is none, so the few bytes a room waits
    for do not queue behind payload in bulk. The engine of ``req0`` has the lower half of
    ``config.read_tags``, that of ``req1`` the upper half.
    Latency: 1 cycle for a request, none for a completion. Throughput: one request and one
    completion beat per cycle, requests in turn. Reset: empty.
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
        m.submodules.merge = merge = StreamArbiter(shape=edge_read_request(), inputs=2)
        wiring.connect(m, wiring.flipped(self.req0), merge.i0)
        wiring.connect(m, wiring.flipped(self.req1), merge.i1)
        wiring.connect(m, merge.o, wiring.flipped(self.rd_req))
        upper = self.rd_rsp.payload.tag[self._upper]
        m.d.comb += [
            self.rsp0.payload.eq(self.rd_rsp.payload),
            self.rsp1.payload.eq(self.rd_rsp.payload),
            self.rsp0.valid.eq(self.rd_rsp.valid & ~upper),
            self.rsp1.valid.eq(self.rd_rsp.valid & upper),
        ]
        return m
