"""Host reads as AXI4 read bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.count import increment
from hdl.config import NicConfig
from hdl.ports.host import edge_read_beat, edge_read_request

from .bus import RESP_ERROR_BIT, Axi4Read, Burst
from .order import Fence

__all__ = ["ID_BITS", "AxiReads"]

#: Bits of ARID: a tag of the host port.
ID_BITS = 8
#: Reads that wait for writes before them: those of a memory that takes 32 cycles for a write.
WAITING = 32


class AxiReads(wiring.Component):
    """Makes a burst of each read; the tag is its ARID, so responses come in any order.

    The beats of different bursts may alternate (A5.3). A burst is at most ``read_bytes`` long and
    never crosses 4 KiB, as the host port has it. Its address is aligned to the beat: bytes beside
    those that were asked for are read and not used.

    Members: ``rd_req``, ``rd_rsp``: the host port; ``axi``; ``taken``, ``done``: bursts of the
    write side (see ``Fence``). Parameters: ``bursts``: the most of these; ``cache``: ARCACHE.
    Waits: a read waits for each write burst that was taken before it.
    Latency: 3 cycles to the address channel, none back. Throughput: a request and a beat per cycle.
    RREADY is always high.
    Errors: SLVERR or DECERR on any beat becomes ``error`` on the last beat of its tag; ``errors``
    counts such bursts and wraps.
    Reset: nothing is asked for during the first ``read_tags`` cycles. Bursts that are on their way
    at a reset must end before it does.
    """

    def __init__(self, *, config: NicConfig, bursts: int, cache: int):
        self._config, self._bursts, self._cache = config, bursts, cache
        super().__init__(
            {
                "rd_req": In(stream.Signature(edge_read_request())),
                "rd_rsp": Out(stream.Signature(edge_read_beat(config.width), always_ready=True)),
                "axi": Out(Axi4Read(config.width, ID_BITS)),
                "taken": In(1),
                "done": In(1),
                "errors": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = ceil_log2(self._config.bytes_per_beat)
        burst = data.StructLayout({"tag": 8, "function": 8, "line": 64 - lanes, "beats": 8})
        m.submodules.fence = fence = Fence(shape=burst, depth=WAITING, bursts=self._bursts)
        axi, request, asked = self.axi, self.rd_req.payload, fence.o.payload
        last_byte = Signal(13)  # counted from the beginning of the first beat
        failed, cleared = self._failures(m)
        m.d.comb += [
            last_byte.eq(request.addr[:lanes] + request.length - 1),
            fence.i.payload.tag.eq(request.tag),
            fence.i.payload.function.eq(request.function),
            fence.i.payload.line.eq(request.addr[lanes:]),
            fence.i.payload.beats.eq(last_byte[lanes:]),
            fence.i.valid.eq(self.rd_req.valid),
            self.rd_req.ready.eq(fence.i.ready),
            fence.taken.eq(self.taken),
            fence.done.eq(self.done),
            axi.arvalid.eq(fence.o.valid & cleared),
            fence.o.ready.eq(axi.arready & cleared),
            axi.arid.eq(asked.tag),
            axi.araddr.eq(Cat(Const(0, lanes), asked.line)),
            axi.arlen.eq(asked.beats),
            axi.arsize.eq(lanes),
            axi.arburst.eq(Burst.INCR),
            axi.arcache.eq(self._cache),
            axi.aruser.eq(asked.function),
            axi.rready.eq(1),
            self.rd_rsp.valid.eq(axi.rvalid),
            self.rd_rsp.payload.tag.eq(axi.rid),
            self.rd_rsp.payload.data.eq(axi.rdata),
            self.rd_rsp.payload.last.eq(axi.rlast),
            self.rd_rsp.payload.error.eq(axi.rlast & failed),
        ]
        with m.If(axi.rvalid & axi.rlast & failed):
            increment(m, self.errors)
        return m

    def _failures(self, m: Module) -> tuple[Signal, Signal]:
        """A bit for each tag: a beat of it has failed. Returns that of the present beat, with this
        beat itself, and whether all bits are cleared."""
        axi, tags = self.axi, self._config.read_tags
        m.submodules.failures = failures = memory.Memory(shape=1, depth=tags, init=[])
        put, get = failures.write_port(), failures.read_port(domain="comb")
        clear, cleared = Signal(range(2 * tags)), Signal()
        before, failed = Signal(), Signal()  # a beat before this one, or this one
        m.d.comb += [
            cleared.eq(clear[-1]),
            get.addr.eq(axi.rid),
            before.eq(get.data),
            failed.eq(before | axi.rresp[RESP_ERROR_BIT]),
            put.addr.eq(Mux(cleared, axi.rid, clear)),
            put.data.eq(cleared & failed & ~axi.rlast),
            put.en.eq(~cleared | axi.rvalid),
        ]
        with m.If(~cleared):
            m.d.sync += clear.eq(clear + 1)
        return failed, cleared
