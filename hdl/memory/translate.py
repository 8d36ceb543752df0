"""Translation: a key and a range of addresses become chunks of host memory."""

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import COUNT
from hdl.common.sums import wide_sum
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.rows import MrRow

from .cache import PageCache
from .keys import KeyCheck
from .plain_pages import PlainPages
from .resolve import KeyResolve, layout_members
from .share import ReadShare
from .types import PAGE_BITS, Region, TranslateChunk, TranslateRequest, place_bits

__all__ = ["Translate"]


class Translate(wiring.Component):
    """Resolves each request's key (KeyResolve), checks it (KeyCheck), cuts the range at 4 KiB, and
    finds the pages (PageCache, or PlainPages where ``translation_lines`` is 0).

    Members: ``i`` stream of TranslateRequest; ``o`` stream of TranslateChunk, at least one per
    request, in order, the last with ``last``; ``mr`` read port of the table of regions;
    ``read_client`` reads page lists and the entries of indirect keys; ``invalidate_mr``,
    ``invalidate_start`` (pulse) and ``invalidate_done`` (low from the cycle after start until
    finished) drop all cached pages of a region: first invalidate its row, then drain what was
    admitted under it, then this.
    Counters, ``COUNT`` bits, wrapping: ``hits``, ``misses``, ``key_errors``.
    A request of 0 bytes and one with ``check_only`` get one chunk of length 0.
    Latency: 9 cycles to the first chunk when its page is cached or the region is a DMA one.
    Throughput: one chunk per cycle, also across requests; a miss does not hold up lookups behind
    it until 16 are in flight. Without a cache: see PlainPages.
    Errors: status LOC_PROT_ERR, or REM_ACCESS_ERR when ``remote``: key check failed, page list
    could not be read, or an entry is not a multiple of the page size. It ends the request's chunks
    for the user; later chunks of the same request may still come and carry ``last`` as usual.
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
                "hits": Out(COUNT),
                "misses": Out(COUNT),
                "key_errors": Out(COUNT),
                **layout_members(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.resolve = resolve = KeyResolve(config=self._config)
        m.submodules.keys = keys = KeyCheck(config=self._config)
        pages = PageCache if self._config.translation_lines else PlainPages
        m.submodules.cache = cache = pages(config=self._config)
        connect(m, flipped(self.i), resolve.i)
        connect(m, resolve.mr, flipped(self.mr))
        connect(m, resolve.o, keys.i)
        connect(m, cache.o, flipped(self.o))
        self._read(m, cache, resolve)
        m.d.comb += [
            cache.invalidate_mr.eq(self.invalidate_mr),
            cache.invalidate_start.eq(self.invalidate_start),
            self.invalidate_done.eq(cache.invalidate_done),
            self.hits.eq(cache.hits),
            self.misses.eq(cache.misses),
            self.key_errors.eq(keys.key_errors),
        ]

        if self._config.mkeys:
            m.d.comb += resolve.layout.eq(self.layout)

        # Cut at 4 KiB. ``past``: end of the range, counted from the start of the page that is next.
        cutting, region, lookup = Signal(), Signal(Region, reset_less=True), cache.i.payload
        past, last = Signal(33, reset_less=True), Signal()
        ends = last & ~region.single
        within, page = region.addr[:PAGE_BITS], region.addr[PAGE_BITS:]
        m.d.comb += [
            last.eq(
                region.single
                | ((past[PAGE_BITS + 1 :] == 0) & ~(past[PAGE_BITS] & past[:PAGE_BITS].any()))
            ),
            cache.i.valid.eq(cutting),
            keys.o.ready.eq(~cutting | (cache.i.ready & last)),
            lookup.function.eq(region.function),
            lookup.mr.eq(region.mr),
            lookup.paged.eq(region.paged),
            lookup.addr.eq(region.addr),
            lookup.table.eq(region.table),
            lookup.page_size.eq(region.page_size),
            lookup.two_level.eq(region.two_level),
            # no Mux: Yosys would make one difference of the two, behind ``last``
            lookup.length.eq(
                ((past[: PAGE_BITS + 1] - within) & ends.replicate(PAGE_BITS + 1))
                | (((1 << PAGE_BITS) - within) & (~last).replicate(PAGE_BITS + 1))
            ),
            lookup.last.eq(last),
            lookup.end.eq(region.end & last),
            lookup.remote.eq(region.remote),
            lookup.status.eq(region.status),
        ]
        end = wide_sum(m, keys.o.p.length, keys.o.p.addr[:PAGE_BITS])
        # Nothing lies behind the last place or the last bus address.
        pages = max(place_bits(self._config), self._config.address_bits) - PAGE_BITS
        next_page = wide_sum(m, page[:pages], Const(1))[:pages]
        with m.If(keys.o.ready):
            m.d.sync += [
                cutting.eq(keys.o.valid),
                region.eq(keys.o.payload),
                past.eq(end),
            ]
        with m.Elif(cache.i.ready):
            m.d.sync += [
                page.eq(next_page),
                within.eq(0),
                past[PAGE_BITS:].eq(past[PAGE_BITS:] - 1),
            ]
        return m

    def _read(self, m: Module, cache, resolve: KeyResolve) -> None:
        """Who reads host memory: the cache, and what walks the entries of indirect keys."""
        clients = [cache.read_client, *resolve.entries]
        if len(clients) == 1:
            connect(m, cache.read_client, flipped(self.read_client))
            return
        m.submodules.reads = reads = ReadShare(config=self._config, clients=len(clients))
        connect(m, reads.read_client, flipped(self.read_client))
        for n, client in enumerate(clients):
            connect(m, client, getattr(reads, f"client{n}"))
