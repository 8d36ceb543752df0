"""The cache of page addresses: looked up in order, filled in order, misses overlap."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from hdl.common.count import increment
from hdl.common.sums import wide_sum
from hdl.config import NicConfig

from .lines import LineReads
from .pages import PageStore
from .tags import TagLookup
from .types import TABLE_PAGE_LINE_BITS, page_members

__all__ = ["MISSES", "PageCache"]

#: Lines on their way from host memory at a time.
MISSES = 16


class PageCache(wiring.Component):
    """Finds the page of each lookup; direct mapped, a line is eight entries (64 bytes) of a list.

    The tags are ahead of the data, as in a texture cache: a lookup that misses writes its tag at
    once and asks for the line; the lookup then waits in a FIFO. When it leaves the FIFO, its line
    is taken from the fills, which come in the same order, and written to the data. The data are
    therefore always what the tags said when the lookup passed them, and nothing needs a lock.

    Members: ``i`` stream of Lookup, ``o`` stream of TranslateChunk, one per lookup, in order;
    ``read_client``; ``invalidate_*`` as in Translate; ``hits``, ``misses`` (``COUNT`` bits, wrap).
    Latency: 4 cycles without a miss. Throughput: one lookup per cycle, a miss in two, up to 16
    misses and 32 lookups in flight; a tag written by a sweep or after a failed fill costs lookups a
    cycle.
    Errors: a line that could not be read, or an entry that is not a multiple of the page size,
    gives the lookup's error status; a line that could not be read loses its tag.
    Reset: empty; the tags clear, one line a cycle, lookups wait.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(page_members(config))

    def elaborate(self, platform):
        m = Module()
        m.submodules.tags = tags = TagLookup(config=self._config)
        m.submodules.pages = pages = PageStore(config=self._config)
        m.submodules.reads = reads = LineReads(config=self._config, most=MISSES)
        connect(m, flipped(self.i), tags.i)
        connect(m, pages.o, flipped(self.o))
        connect(m, reads.read_client, flipped(self.read_client))
        connect(m, reads.rsp, pages.rsp)
        m.d.comb += [
            tags.invalidate_mr.eq(self.invalidate_mr),
            tags.invalidate_start.eq(self.invalidate_start),
            self.invalidate_done.eq(tags.invalidate_done),
            tags.drop.eq(pages.failed),
            tags.drop_index.eq(pages.failed_index),
            pages.failed_taken.eq(~tags.swept),
        ]

        # From the tags to the data; on a miss also ask for the line.
        placed, request = tags.o.payload, reads.i.payload
        lookup, go, ask, may_ask = placed.lookup, Signal(), Signal(), Signal()
        credits = Signal(range(MISSES + 1), init=MISSES)
        m.d.comb += [
            may_ask.eq(~tags.dropping & (credits != 0) & reads.i.ready),
            tags.o.ready.eq(pages.room & (~placed.miss | may_ask)),
            go.eq(tags.o.valid & tags.o.ready),
            ask.eq(go & placed.miss),
            pages.put.eq(go),
            pages.placed.eq(placed),
        ]
        m.d.sync += credits.eq(credits + pages.filled - ask)
        with m.If(go & lookup.paged):
            with m.If(placed.miss):
                increment(m, self.misses)
            with m.Else():
                increment(m, self.hits)

        # Of a list of two levels a page holds 64 lines, and its address is an entry of the first.
        page, line = tags.line[TABLE_PAGE_LINE_BITS:], tags.line[:TABLE_PAGE_LINE_BITS]
        m.d.comb += [
            reads.i.valid.eq(ask),
            request.function.eq(lookup.function),
            request.two_level.eq(lookup.two_level),
            request.block.eq(wide_sum(m, lookup.table, tags.block)),
            request.entry.eq(page[:3] & lookup.two_level.replicate(3)),
            request.line.eq(line),
        ]
        return m
