"""The pages of lookups without a cache: each one's entry is read from its page list."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE
from hdl.common.count import increment
from hdl.common.sums import wide_sum
from hdl.config import NicConfig

from .fill import is_bad, odd_bits
from .pages import place_chunk
from .types import PAGE_BITS, Lookup, entry_number, line_number, page_members

__all__ = ["PlainPages"]


class PlainPages(wiring.Component):
    """Finds the page of each lookup, one after the other; for cards with ``translation_lines`` 0.

    Members: as PageCache; each read of an entry counts in ``misses``, and ``hits`` stays 0. There
    is nothing to invalidate, so ``invalidate_done`` is always 1.
    Latency: 1 cycle, or with a page list 3 more than the read. Throughput: a lookup in 2 cycles, or
    with a page list in 4 more than the read: such a card has a slow wire and few look-up tables.
    Errors: an entry that could not be read, or is not a multiple of the page size, gives the
    lookup's error status. Reset: no lookup waits; no read may be in flight.
    """

    def __init__(self, *, config: NicConfig):
        super().__init__(page_members(config))

    def elaborate(self, platform):
        m = Module()
        request, answer = self.read_client.req, self.read_client.rsp
        lookup = Signal(Lookup, reset_less=True)
        entry, bad = Signal(64 - PAGE_BITS, reset_less=True), Signal(reset_less=True)
        at = Cat(entry_number(lookup), wide_sum(m, lookup.table, line_number(lookup)))
        m.d.comb += [
            self.invalidate_done.eq(1),
            request.p.function.eq(lookup.function),
            request.p.addr.eq(Cat(Const(0, ceil_log2(PAGE_ENTRY_SIZE)), at)),
            request.p.length.eq(PAGE_ENTRY_SIZE),
            *place_chunk(self.o.p, lookup, entry, lookup.paged & bad),
        ]
        with m.FSM(name="plain_pages"):
            with m.State("TAKE"):
                # TAKE: takes a lookup; ends when there is one.
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += lookup.eq(self.i.payload)
                with m.If(self.i.valid):
                    with m.If(self.i.p.paged):
                        m.next = "READ"
                    with m.Else():
                        m.next = "GIVE"
            with m.State("READ"):
                # READ: asks for the entry of its page; ends when the read is taken.
                m.d.comb += request.valid.eq(1)
                with m.If(request.ready):
                    increment(m, self.misses)
                    m.next = "WAIT"
            with m.State("WAIT"):
                # WAIT: registers the entry; ends with the answer.
                found = answer.p.data[: 8 * PAGE_ENTRY_SIZE]
                m.d.sync += [
                    entry.eq(found[PAGE_BITS:]),
                    bad.eq(answer.p.error | is_bad(odd_bits(found), lookup.page_size)),
                ]
                with m.If(answer.valid):
                    m.next = "GIVE"
            with m.State("GIVE"):
                # GIVE: offers the chunk; ends when it is taken.
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "TAKE"
        return m
