"""The cache of page addresses: looked up in order, filled in order, misses overlap."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.enums import WcStatus
from hdl.common.count import COUNT, increment
from hdl.common.ram import Ram
from hdl.common.sums import wide_sum
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .fill import LineFill, page_line
from .sweep import Sweep, tag_row
from .types import LINE_BITS, PAGE_BITS, Lookup, TranslateChunk

__all__ = ["MISSES", "PageCache"]

#: Lines on their way from host memory at a time.
MISSES = 16
#: Bits of a tag that are compared behind the RAM: two levels of logic and its forwarding.
TAG_PART = 6
#: Lookups between the tags and the data.
WAITING = 32


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
    Errors: a line that could not be read, or an entry with bits 11:0 set, gives the lookup's error
    status; a line that could not be read loses its tag.
    Reset: empty; the tags clear, one line a cycle, lookups wait.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        self._lines = config.translation_lines
        super().__init__(
            {
                "i": In(stream.Signature(Lookup)),
                "o": Out(stream.Signature(TranslateChunk)),
                "read_client": Out(ReadClient(config.width)),
                "invalidate_mr": In(16),
                "invalidate_start": In(1),
                "invalidate_done": Out(1),
                "hits": Out(COUNT),
                "misses": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lines, index_bits = self._lines, ceil_log2(self._lines)
        mr_bits = ceil_log2(self._config.mrs)
        # Given the region, index and upper bits are the line: the region only flips index bits.
        tag = tag_row(mr_bits, max(1, LINE_BITS - index_bits))
        # A sweep may see what was in a line before a lookup took it.
        m.submodules.tags = tags = Ram(shape=tag, depth=lines, reads=2, earlier={1})
        m.submodules.sweep = sweep = Sweep(lines=lines, row=tag)
        m.submodules.fill = fill = LineFill(width=self._config.width)
        # A line is read at the earliest in the cycle after it was written.
        m.submodules.pages = pages = Ram(shape=page_line(), depth=lines, forward=False)
        waiting = data.StructLayout({"lookup": Lookup, "index": index_bits, "miss": 1})
        waiting_bits = Shape.cast(waiting).width
        m.submodules.queue = queue = SyncFIFO(width=waiting_bits, depth=WAITING)
        m.d.comb += [
            sweep.start.eq(self.invalidate_start),
            sweep.mr.eq(self.invalidate_mr),
            self.invalidate_done.eq(sweep.done),
            tags.read1.index.eq(sweep.tags.index),
            tags.read1.enable.eq(sweep.tags.enable),
            sweep.tags.row.eq(tags.read1.row),
        ]

        # Stage 1: the tag is being read. Stage 2: it has been compared.
        one, two = Signal(Lookup, reset_less=True), Signal(Lookup, reset_less=True)
        valid_1, valid_2, ready_1, ready_2 = Signal(), Signal(), Signal(), Signal()
        index = self._index(self.i.payload, index_bits, mr_bits)
        index_1 = Signal(index_bits, reset_less=True)
        index_2 = Signal(index_bits, reset_less=True)
        m.d.comb += [
            ready_1.eq(~valid_1 | ready_2),
            self.i.ready.eq(ready_1 & ~sweep.clearing),
            tags.read0.index.eq(index),
            tags.read0.enable.eq(self.i.valid & self.i.ready),
        ]

        # The cached lookup before this one may not have written its tag when this one reads.
        before = Signal(Lookup, reset_less=True)
        before_known = Signal()
        same_line = (
            before_known
            & (before.mr == self.i.p.mr)
            & (before.addr[PAGE_BITS + 3 : 48] == self.i.p.addr[PAGE_BITS + 3 : 48])
        )
        before_index = Signal(index_bits, reset_less=True)
        line_1, line_2, clash_1, clash_2 = Signal(), Signal(), Signal(), Signal()
        forget = Signal()
        with m.If(ready_1):
            m.d.sync += [
                valid_1.eq(self.i.valid & self.i.ready),
                one.eq(self.i.payload),
                index_1.eq(index),
                line_1.eq(same_line),
                clash_1.eq(before_index == index),
            ]
        with m.If(self.i.valid & self.i.ready & self.i.p.paged):
            m.d.sync += [
                before.eq(self.i.payload),
                before_index.eq(index),
                before_known.eq(1),
            ]
        with m.If(forget):
            m.d.sync += before_known.eq(0)

        # Parts of the comparison, as the row is late.
        row, found_tag = tags.read0.row, Cat(tags.read0.row.mr, tags.read0.row.high)
        wanted_tag = Cat(one.mr[:mr_bits], one.addr[PAGE_BITS + 3 + index_bits : 48])
        parts = range(0, len(found_tag), TAG_PART)
        matches = Signal(1 + len(parts))
        with m.If(ready_2):
            m.d.sync += [
                valid_2.eq(valid_1),
                two.eq(one),
                index_2.eq(index_1),
                line_2.eq(line_1),
                clash_2.eq(clash_1),
                matches.eq(
                    Cat(
                        row.valid,
                        *(
                            found_tag[at : at + TAG_PART] == wanted_tag[at : at + TAG_PART]
                            for at in parts
                        ),
                    )
                ),
            ]

        # Decide: into the FIFO; on a miss also write the tag and ask for the line.
        request = self.read_client.req
        before_missed, missed, go, ask = Signal(), Signal(), Signal(), Signal()
        straight = Signal()
        credits = Signal(range(MISSES + 1), init=MISSES)
        drop, drop_index = Signal(), Signal(index_bits, reset_less=True)
        m.d.comb += [
            missed.eq(two.paged & ~line_2 & ~(matches.all() & ~(clash_2 & before_missed))),
            forget.eq(drop | ~sweep.done),
            go.eq(
                valid_2
                & queue.w_rdy
                & (
                    ~missed
                    | (~drop & ~sweep.drop & (credits != 0) & (~request.valid | request.ready))
                )
            ),
            ready_2.eq(~valid_2 | go),
            ask.eq(go & missed),
            queue.w_en.eq(go & ~straight),
            queue.w_data.eq(Cat(two, index_2, missed)),
        ]
        with m.If(drop | sweep.drop):
            m.d.comb += [
                tags.write.enable.eq(1),
                tags.write.index.eq(Mux(sweep.drop, sweep.index, drop_index)),
            ]
        with m.Else():
            m.d.comb += [
                tags.write.enable.eq(ask),
                tags.write.index.eq(index_2),
                tags.write.row.valid.eq(1),
                tags.write.row.mr.eq(two.mr),
                tags.write.row.high.eq(two.addr[PAGE_BITS + 3 + index_bits : 48]),
            ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(go & two.paged):
            m.d.sync += before_missed.eq(missed)
            with m.If(missed):
                increment(m, self.misses)
            with m.Else():
                increment(m, self.hits)
        block = wide_sum(m, two.table, two.addr[PAGE_BITS + 3 : 48])[:58]
        with m.If(ask):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.function.eq(two.function),
                request.payload.addr.eq(Cat(Const(0, 6), block)),
                request.payload.length.eq(64),
            ]

        # Out of the FIFO (a hit bypasses it when it is empty): a missed line is taken
        # from the fills and written, and read in the cycle after.
        head, last = Signal(waiting), Signal(waiting, reset_less=True)
        valid_3, ready_3, ready_4 = Signal(), Signal(), Signal()
        take, leave, refill, filled = Signal(), Signal(), Signal(), Signal()
        connect_fill = [
            fill.rsp.valid.eq(self.read_client.rsp.valid),
            fill.rsp.payload.eq(self.read_client.rsp.payload),
            fill.o.ready.eq(refill),
        ]
        m.d.comb += [
            *connect_fill,
            head.eq(Mux(queue.r_rdy, queue.r_data, queue.w_data)),
            ready_4.eq(~self.o.valid | self.o.ready),
            ready_3.eq(~valid_3 | ready_4),
            straight.eq(valid_2 & ~queue.r_rdy & ~missed & ready_3),
            leave.eq(queue.r_rdy & ready_3 & (~head.miss | filled)),
            take.eq(straight | leave),
            refill.eq(queue.r_rdy & head.miss & ~filled & fill.o.valid & ~drop),
            queue.r_en.eq(leave),
            pages.write.index.eq(head.index),
            pages.write.row.eq(fill.o.payload),
            pages.write.enable.eq(refill),
            pages.read0.index.eq(head.index),
            pages.read0.enable.eq(take),
        ]
        m.d.sync += [
            credits.eq(credits + refill - ask),
            filled.eq(refill | (filled & ~leave)),
            drop.eq((refill & fill.o.p.error) | (drop & sweep.drop)),
        ]
        with m.If(refill):
            m.d.sync += drop_index.eq(head.index)
        with m.If(ready_3):
            m.d.sync += valid_3.eq(take)
        with m.If(take):
            m.d.sync += last.eq(head)

        # The entry of the line, in a register of its own: the RAM's output is late.
        line, found = pages.read0.row, Signal(53)
        entry, entry_error = Signal(53, reset_less=True), Signal(reset_less=True)
        lookup = Signal(Lookup, reset_less=True)
        with m.Switch(last.lookup.addr[PAGE_BITS : PAGE_BITS + 3]):
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
        bad = lookup.paged & (entry_error | entry[52])
        failure = Mux(lookup.remote, WcStatus.REM_ACCESS_ERR.value, WcStatus.LOC_PROT_ERR.value)
        m.d.comb += [
            self.o.p.addr.eq(
                Mux(lookup.paged, Cat(lookup.addr[:PAGE_BITS], entry[:52]), lookup.addr)
            ),
            self.o.p.length.eq(lookup.length),
            self.o.p.last.eq(lookup.last),
            self.o.p.end.eq(lookup.end),
            self.o.p.status.eq(Mux(bad, failure, lookup.status)),
        ]
        return m

    @staticmethod
    def _index(lookup, index_bits: int, mr_bits: int):
        """Line number, with the region's number over it so that small regions spread."""
        number = lookup.addr[PAGE_BITS + 3 : 48]
        return number[:index_bits] ^ lookup.mr[: min(index_bits, mr_bits)]
