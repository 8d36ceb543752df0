"""Translation: a key and a range of addresses become chunks of host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.rows import MrRow
from hdl.ports.tables import TableRead

from .cache import PageCache
from .keys import KeyCheck
from .types import TranslateChunk, TranslateRequest

__all__ = ["Translate"]


class Translate(wiring.Component):
    """Checks each request's key (KeyCheck), cuts it at pages, and finds the pages (PageCache).

    Members: ``i`` stream of TranslateRequest; ``o`` stream of TranslateChunk, at least one per
    request, in order, the last with ``last``; ``mr`` read port of the table of regions;
    ``read_client`` reads page lists; ``invalidate_mr``, ``invalidate_start`` (pulse) and
    ``invalidate_done`` (low from the cycle after start until finished) drop all cached pages of a
    region: first invalidate its row, then drain what was admitted under it, then this.
    Counters, 32 bit, wrapping: ``hits``, ``misses``, ``key_errors``.
    A request of 0 bytes and one with ``check_only`` get one chunk of length 0.
    Latency: 7 cycles to the first chunk when its page is cached or the region is a DMA one.
    Throughput: one chunk per cycle, also across requests; a miss does not hold up lookups behind
    it until 16 are on their way.
    Errors: status LOC_PROT_ERR, or REM_ACCESS_ERR when ``remote``: key check failed, page list
    could not be read, or an entry is not a multiple of 4 KiB. It ends the request's chunks for the
    user; later chunks of the same request may still come and carry ``last`` as usual.
    Reset: empty; then the cache clears, one line a cycle, and lookups wait.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(TranslateRequest)),
                "o": Out(stream.Signature(TranslateChunk)),
                "mr": Out(TableRead(16, MrRow)),
                "read_client": Out(ReadClient(config.width)),
                "invalidate_mr": In(16),
                "invalidate_start": In(1),
                "invalidate_done": Out(1),
                "hits": Out(32),
                "misses": Out(32),
                "key_errors": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.keys = keys = KeyCheck(config=self._config)
        m.submodules.cache = cache = PageCache(config=self._config)
        connect(m, flipped(self.i), keys.i)
        connect(m, keys.mr, flipped(self.mr))
        connect(m, cache.o, flipped(self.o))
        connect(m, cache.read_client, flipped(self.read_client))
        m.d.comb += [
            cache.invalidate_mr.eq(self.invalidate_mr),
            cache.invalidate_start.eq(self.invalidate_start),
            self.invalidate_done.eq(cache.invalidate_done),
            self.hits.eq(cache.hits),
            self.misses.eq(cache.misses),
            self.key_errors.eq(keys.key_errors),
        ]

        # Cut at pages: the region stays at keys.o until its last chunk is asked for.
        region, lookup = keys.o.payload, cache.i.payload
        begun, addr_r, left_r = Signal(), Signal(64, reset_less=True), Signal(32, reset_less=True)
        addr, left, room, last = Signal(64), Signal(32), Signal(13), Signal()
        m.d.comb += [
            addr.eq(Mux(begun, addr_r, region.addr)),
            left.eq(Mux(begun, left_r, region.length)),
            room.eq(4096 - addr[:12]),
            last.eq(region.single | (left <= room)),
            cache.i.valid.eq(keys.o.valid),
            keys.o.ready.eq(cache.i.ready & last),
            lookup.function.eq(region.function),
            lookup.mr.eq(region.mr),
            lookup.paged.eq(region.paged),
            lookup.addr.eq(addr),
            lookup.table.eq(region.table),
            lookup.length.eq(Mux(region.single, 0, Mux(last, left, room))),
            lookup.last.eq(last),
            lookup.end.eq(region.end & last),
            lookup.remote.eq(region.remote),
            lookup.status.eq(region.status),
        ]
        with m.If(keys.o.valid & cache.i.ready):
            m.d.sync += [begun.eq(~last), addr_r.eq(addr + room), left_r.eq(left - room)]
        return m
