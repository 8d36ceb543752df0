"""The data of the translation cache: where lookups wait, in order, for the line they are in."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.enums import WcStatus
from hdl.abi.virtio_rdma import PAGE_SHIFTS
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import read_beat

from .fill import LineFill, page_line, pages_of
from .tags import placed_lookup
from .types import PAGE_BITS, TranslateChunk, entry_number

__all__ = ["PageStore", "place_chunk"]

#: Lookups between the tags and the data.
WAITING = 32


def place_chunk(chunk, lookup, entry, bad) -> list:
    """Assign to ``chunk`` what comes of ``lookup``; ``entry``: bits 63:12 of its page's address,
    ``bad``: they could not be read, or are not a page's."""
    failure = Mux(lookup.remote, WcStatus.REM_ACCESS_ERR.value, WcStatus.LOC_PROT_ERR.value)
    # Above the smallest pages' offset the address is the entry's, or still in a larger page.
    size, low, page = lookup.page_size, PAGE_BITS, [lookup.addr[:PAGE_BITS]]
    for inside, high in zip((size.any(), size[1]), PAGE_SHIFTS[1:]):
        page.append(Mux(inside, lookup.addr[low:high], entry[low - PAGE_BITS : high - PAGE_BITS]))
        low = high
    page = Cat(*page, entry[low - PAGE_BITS : 52])
    return [
        chunk.addr.eq(Mux(lookup.paged, page, lookup.addr)),
        chunk.length.eq(lookup.length),
        chunk.last.eq(lookup.last),
        chunk.end.eq(lookup.end),
        chunk.status.eq(Mux(bad, failure, lookup.status)),
    ]


class PageStore(wiring.Component):
    """Gives each lookup its page: lookups leave in order, and each miss takes the next fill.

    Members: ``put`` In, with ``placed``: a lookup (``placed_lookup``) enters, only with ``room``;
    ``rsp`` the answers of line reads, one read for each lookup with ``miss``, in order; ``filled``
    Out pulse: the oldest of these reads is finished; ``failed`` Out, with ``failed_index``: its
    line could not be read and must lose its tag; ``failed_taken`` In: the tag is gone; ``o`` stream
    of TranslateChunk, one per lookup, in order.
    Latency: 2 cycles when nothing waits. Throughput: one lookup per cycle, a miss in two.
    Errors: a line that could not be read, or an entry that is not a multiple of the page size,
    gives the lookup's error status. Reset: no lookup waits.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "put": In(1),
                "placed": In(placed_lookup(config)),
                "room": Out(1),
                "rsp": In(stream.Signature(read_beat(config.width), always_ready=True)),
                "filled": Out(1),
                "failed": Out(1),
                "failed_index": Out(ceil_log2(config.translation_lines)),
                "failed_taken": In(1),
                "o": Out(stream.Signature(TranslateChunk)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        waiting = placed_lookup(self._config)
        m.submodules.fill = fill = LineFill(width=self._config.width)
        # A line is read at the earliest in the cycle after it was written.
        lines = self._config.translation_lines
        m.submodules.pages = pages = Ram(shape=page_line(), depth=lines, forward=False)
        m.submodules.queue = queue = SyncFIFO(width=Shape.cast(waiting).width, depth=WAITING)

        # Out of the FIFO (a hit bypasses it when it is empty): a missed line is taken from the
        # fills and written, and read in the cycle after.
        head, last = Signal(waiting), Signal(waiting, reset_less=True)
        waits = waiting(queue.r_data)  # a missed line is written when its lookup has the turn
        valid_3, ready_3, ready_4 = Signal(), Signal(), Signal()
        straight, take, leave = Signal(), Signal(), Signal()
        refill, refilled = self.filled, Signal()  # refilled: the oldest lookup's line is there
        m.d.comb += [
            self.room.eq(queue.w_rdy),
            queue.w_en.eq(self.put & ~straight),
            queue.w_data.eq(self.placed),
            fill.rsp.valid.eq(self.rsp.valid),
            fill.rsp.payload.eq(self.rsp.payload),
            fill.o.ready.eq(refill),
            head.eq(Mux(queue.r_rdy, queue.r_data, queue.w_data)),
            ready_4.eq(~self.o.valid | self.o.ready),
            ready_3.eq(~valid_3 | ready_4),
            straight.eq(self.put & ~queue.r_rdy & ~self.placed.miss & ready_3),
            leave.eq(queue.r_rdy & ready_3 & (~head.miss | refilled)),
            take.eq(straight | leave),
            refill.eq(queue.r_rdy & head.miss & ~refilled & fill.o.valid & ~self.failed),
            queue.r_en.eq(leave),
            pages.write.index.eq(head.index),
            pages.write.row.eq(pages_of(fill.o.payload, waits.lookup.page_size)),
            pages.write.enable.eq(refill),
            pages.read0.index.eq(head.index),
            pages.read0.enable.eq(take),
        ]
        m.d.sync += [
            refilled.eq(refill | (refilled & ~leave)),
            self.failed.eq((refill & fill.o.p.error) | (self.failed & ~self.failed_taken)),
        ]
        failed_index = Signal.like(self.failed_index, reset_less=True)
        m.d.comb += self.failed_index.eq(failed_index)
        with m.If(refill):
            m.d.sync += failed_index.eq(head.index)
        with m.If(ready_3):
            m.d.sync += valid_3.eq(take)
        with m.If(take):
            m.d.sync += last.eq(head)

        # The entry of the line, in a register of its own: the RAM's output is late.
        line, found = pages.read0.row, Signal(53)
        entry, entry_error = Signal(53, reset_less=True), Signal(reset_less=True)
        lookup = Signal(waiting["lookup"].shape, reset_less=True)
        with m.Switch(entry_number(last.lookup)):
            for n in range(8):
                with m.Case(n):
                    m.d.comb += found.eq(line.entries[53 * n : 53 * n + 53])
        with m.If(ready_4):
            m.d.sync += [
                self.o.valid.eq(valid_3),
                entry.eq(found),
                entry_error.eq(line.error),
                lookup.eq(last.lookup),
            ]
        m.d.comb += place_chunk(self.o.p, lookup, entry, lookup.paged & (entry_error | entry[52]))
        return m
