"""The tags of the translation cache: which line a lookup is in, and whether it must be fetched."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig

from .sweep import Sweep, tag_row
from .types import LINE_BITS, TABLE_PAGE_LINE_BITS, Lookup, line_number

__all__ = ["TagLookup", "placed_lookup"]

#: Bits of a tag that are compared behind the RAM: two levels of logic and its forwarding.
TAG_PART = 6
#: log2 of the lines whose pages one block of the first level of a page list names.
FIRST_BITS = TABLE_PAGE_LINE_BITS + 3


def placed_lookup(config: NicConfig) -> data.StructLayout:
    """A lookup, the cache line it is in, and whether that line must be fetched first."""
    index_bits = ceil_log2(config.translation_lines)
    return data.StructLayout({"lookup": Lookup, "index": index_bits, "miss": 1})


class TagLookup(wiring.Component):
    """Compares each lookup with the tag of its line; a lookup that misses takes the line at once.

    The tag is read in the first stage and compared in the second. A lookup that leaves with
    ``miss`` writes its tag, so the next lookup of that line is a hit behind it.
    Members: ``i`` stream of Lookup; ``o`` stream of ``placed_lookup``, in order; ``line`` Out: the
    number of that lookup's line in its region's page list; ``block`` Out: how many blocks of 64
    bytes behind the region's first one the line is, or the entry that names its page. Its user
    takes a lookup with ``miss`` only while ``dropping`` is 0: the tags have one write port.
    ``drop`` In, with ``drop_index``: that line's fill failed, and its tag goes, unless a sweep
    drops another tag in that cycle: ``swept`` Out is 1 then, and ``drop`` must stay.
    ``invalidate_*`` as in Translate.
    Latency: 2 cycles. Throughput: one lookup per cycle.
    Errors: none. Reset: empty; the tags clear, one line a cycle, and lookups wait.
    """

    def __init__(self, *, config: NicConfig):
        self._lines = config.translation_lines
        self._index_bits = ceil_log2(self._lines)
        self._mr_bits = ceil_log2(config.mrs)
        self._two_level = config.two_level
        super().__init__(
            {
                "i": In(stream.Signature(Lookup)),
                "o": Out(stream.Signature(placed_lookup(config))),
                "line": Out(LINE_BITS),
                "block": Out(LINE_BITS),
                "drop": In(1),
                "drop_index": In(self._index_bits),
                "dropping": Out(1),
                "swept": Out(1),
                "invalidate_mr": In(16),
                "invalidate_start": In(1),
                "invalidate_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lines, index_bits, mr_bits = self._lines, self._index_bits, self._mr_bits
        # Given the region, index and upper bits are the line: the region only flips index bits.
        tag = tag_row(mr_bits, max(1, LINE_BITS - index_bits))
        # A sweep may see what was in a line before a lookup took it.
        m.submodules.tags = tags = Ram(shape=tag, depth=lines, reads=2, earlier={1})
        m.submodules.sweep = sweep = Sweep(lines=lines, row=tag)
        m.d.comb += [
            sweep.start.eq(self.invalidate_start),
            sweep.mr.eq(self.invalidate_mr),
            self.invalidate_done.eq(sweep.done),
            tags.read1.index.eq(sweep.tags.index),
            tags.read1.enable.eq(sweep.tags.enable),
            sweep.tags.row.eq(tags.read1.row),
            self.swept.eq(sweep.drop),
        ]

        # Stage 1: the tag is being read. Stage 2: it has been compared.
        one, two = Signal(Lookup, reset_less=True), Signal(Lookup, reset_less=True)
        valid_1, valid_2, ready_1, ready_2 = Signal(), self.o.valid, Signal(), Signal()
        wanted = line_number(self.i.payload)
        index = self._index(wanted, self.i.p.mr)
        index_1 = Signal(index_bits, reset_less=True)
        index_2 = Signal(index_bits, reset_less=True)
        m.d.comb += [
            ready_1.eq(~valid_1 | ready_2),
            ready_2.eq(~valid_2 | self.o.ready),
            self.i.ready.eq(ready_1 & ~sweep.clearing),
            tags.read0.index.eq(index),
            tags.read0.enable.eq(self.i.valid & self.i.ready),
            self.o.p.lookup.eq(two),
            self.o.p.index.eq(index_2),
        ]

        # The cached lookup before this one may not have written its tag when this one reads.
        before_mr, before_line = Signal(16, reset_less=True), Signal(LINE_BITS, reset_less=True)
        before_known = Signal()
        same_line = before_known & (before_mr == self.i.p.mr) & (before_line == wanted)
        before_index = Signal(index_bits, reset_less=True)
        line_1 = Signal(LINE_BITS, reset_less=True)
        same_1, same_2, clash_1, clash_2 = Signal(), Signal(), Signal(), Signal()
        with m.If(ready_1):
            m.d.sync += [
                valid_1.eq(self.i.valid & self.i.ready),
                one.eq(self.i.payload),
                index_1.eq(index),
                line_1.eq(wanted),
                same_1.eq(same_line),
                clash_1.eq(before_index == index),
            ]
        with m.If(self.i.valid & self.i.ready & self.i.p.paged):
            m.d.sync += [
                before_mr.eq(self.i.p.mr),
                before_line.eq(wanted),
                before_index.eq(index),
                before_known.eq(1),
            ]
        with m.If(self.drop | ~sweep.done):
            m.d.sync += before_known.eq(0)

        # Parts of the comparison, as the row is late.
        row, found_tag = tags.read0.row, Cat(tags.read0.row.mr, tags.read0.row.high)
        wanted_tag = Cat(one.mr[:mr_bits], line_1[index_bits:])
        parts = [slice(at, at + TAG_PART) for at in range(0, len(found_tag), TAG_PART)]
        matches = Signal(1 + len(parts))
        with m.If(ready_2):
            m.d.sync += [
                valid_2.eq(valid_1),
                two.eq(one),
                index_2.eq(index_1),
                self.line.eq(line_1),
                same_2.eq(same_1),
                clash_2.eq(clash_1),
                matches.eq(
                    Cat(row.valid, *(found_tag[part] == wanted_tag[part] for part in parts))
                ),
            ]
        if self._two_level:
            with m.If(ready_2):
                m.d.sync += self.block.eq(Mux(one.two_level, line_1[FIRST_BITS:], line_1))
        else:
            m.d.comb += self.block.eq(self.line)

        before_missed, left = Signal(), Signal()
        missed = self.o.p.miss
        m.d.comb += [
            missed.eq(two.paged & ~same_2 & ~(matches.all() & ~(clash_2 & before_missed))),
            left.eq(valid_2 & self.o.ready),
            self.dropping.eq(self.drop | sweep.drop),
        ]
        with m.If(left & two.paged):
            m.d.sync += before_missed.eq(missed)
        with m.If(self.dropping):
            m.d.comb += [
                tags.write.enable.eq(1),
                tags.write.index.eq(Mux(sweep.drop, sweep.index, self.drop_index)),
            ]
        with m.Else():
            m.d.comb += [
                tags.write.enable.eq(left & missed),
                tags.write.index.eq(index_2),
                tags.write.row.valid.eq(1),
                tags.write.row.mr.eq(two.mr),
                tags.write.row.high.eq(self.line[index_bits:]),
            ]
        return m

    def _index(self, line, mr):
        """Line number, with the region's number over it so that small regions spread."""
        bits = self._index_bits
        return line[:bits] ^ mr[: min(bits, self._mr_bits)]
