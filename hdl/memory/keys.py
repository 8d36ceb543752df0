"""Key check: may these bytes be touched with this key, and where do they begin?"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.count import COUNT, increment
from hdl.common.sums import at_most, wide_difference, wide_sum
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.numbers import card_number, ordinal_of
from hdl.ports.rows import MrRow, MrType

from .types import ACCESS_REMOTE_ATOMIC, Region, TranslateRequest, place_bits

__all__ = ["KeyCheck"]

#: The bit of ``access`` that an atomic needs.
ATOMIC_BIT = ACCESS_REMOTE_ATOMIC.bit_length() - 1
#: Bits of ``MrRow.type`` that let a key be used, either of them.
DMA_BIT, PAGES_BIT = (kind.value.bit_length() - 1 for kind in (MrType.DMA, MrType.PAGES))
#: Bits that tell a memory window, and with it one of type 2.
WINDOW_BIT, KEY_BIT = (kind.value.bit_length() - 1 for kind in (MrType.WINDOW_1, MrType.FREE))


class KeyCheck(wiring.Component):
    """Compares each request with the row of its memory region.

    Spec: IBTA vol 1, 10.6.3 (protection), virtio-rdma VR-3.18 (keys: region number << 8 | tag).
    Passed: the region exists, its tag, function and PD are those of the request, it grants all the
    access bits, and va .. va + length lies within it without wrapping. An atomic's word begins at a
    multiple of 8 of the bus as well. A memory window is for peers alone, one of type 2 for one
    QP's. A request of 0 bytes passes unchecked.
    Members: ``i`` stream of TranslateRequest, ``o`` stream of Region, ``mr`` read port of the
    table, ``key_errors`` requests that failed (``COUNT`` bits, wraps).
    Latency: 4 cycles. Throughput: one request per cycle. ``i.ready`` is a register.
    Errors: status LOC_PROT_ERR or, when ``remote``, REM_ACCESS_ERR. A region with pages of 2**47
    bytes or more fails. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(TranslateRequest)),
                "o": Out(stream.Signature(Region)),
                "mr": Out(TableRead(16, MrRow)),
                "key_errors": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        entering, entering_valid = Signal(TranslateRequest), Signal()
        valid = [Signal(name=f"valid{n}") for n in range(4)]
        ready = [Signal(name=f"ready{n}") for n in range(5)]
        m.d.comb += ready[4].eq(self.o.ready)
        for n in range(4):
            m.d.comb += ready[n].eq(~valid[n] | ready[n + 1])
            with m.If(ready[n]):
                m.d.sync += valid[n].eq(entering_valid if n == 0 else valid[n - 1])
        asked = [Signal(TranslateRequest, name=f"asked{n}", reset_less=True) for n in range(3)]

        # Take the request, read the row. One that comes while the pipe stalls waits in ``spare``.
        spare, spare_valid = Signal(TranslateRequest, reset_less=True), Signal()
        m.d.comb += [
            self.i.ready.eq(~spare_valid),
            entering.eq(Mux(spare_valid, spare, self.i.payload)),
            entering_valid.eq(spare_valid | self.i.valid),
            self.mr.index.eq(self._index(entering)),
            self.mr.enable.eq(entering_valid & ready[0]),
        ]
        with m.If(ready[0]):
            m.d.sync += [asked[0].eq(entering), spare_valid.eq(0)]
        with m.Else():
            m.d.sync += spare_valid.eq(entering_valid)
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.i.payload)

        # Register the row; meanwhile the request's end, in the lower half of the address space.
        row, inside, empty = Signal(MrRow, reset_less=True), Signal(), Signal()
        bits = self._config.address_bits
        past = Signal(33, reset_less=True)
        past_0 = wide_sum(m, asked[0].va[: min(bits, 32)], asked[0].length)
        with m.If(ready[1]):
            m.d.sync += [
                asked[1].eq(asked[0]),
                row.eq(self.mr.row),
                inside.eq(asked[0].key[8:] < self._config.guest.mrs),
                past.eq(past_0),
                empty.eq(asked[0].length == 0),
            ]

        # Compare what needs no sum; distance from the region's start, and how far it may be.
        reached = max(bits, 32)  # a request has a length of 32 bits
        allowed, distance = Signal(), Signal(bits + 1, reset_less=True)
        furthest, wraps = Signal(reached + 1, reset_less=True), Signal()
        start, table = Signal(48, reset_less=True), Signal(58, reset_less=True)
        page_size, two_level = Signal(2, reset_less=True), Signal(reset_less=True)
        paged, empty_2 = Signal(), Signal()
        pages_of = Signal(16, reset_less=True)  # the region whose page list it is
        kind = Value.cast(row.type)
        usable, number = self._window(asked[1], row)
        m.d.comb += wraps.eq(self._wraps(asked[1], past))
        distance_1 = wide_difference(m, asked[1].va[:bits], row.va[:bits])
        reach = Cat(row.length[:bits], kind[DMA_BIT].replicate(reached))[:reached]
        furthest_1 = wide_difference(m, reach, asked[1].length)
        with m.If(ready[2]):
            m.d.sync += [
                asked[2].eq(asked[1]),
                allowed.eq(
                    inside
                    & (kind[DMA_BIT] | (kind[PAGES_BIT] & (row.length[47:] == 0)))
                    & (row.tag == asked[1].key[:8])
                    & (row.function == asked[1].function)
                    & (row.pd == asked[1].pd)
                    & ((asked[1].access & ~row.access) == 0)
                    & ~wraps
                    & usable
                ),
                pages_of.eq(number),
                paged.eq(kind[PAGES_BIT]),
                distance.eq(distance_1),
                furthest.eq(furthest_1),
                start.eq(row.start),
                table.eq(row.block),
                page_size.eq(row.page_size if self._config.page_sizes else 0),
                two_level.eq(row.two_level if self._config.two_level else 0),
                empty_2.eq(empty),
            ]

        # Verdict.
        ok, region, refused = Signal(), Signal(Region, reset_less=True), Signal()
        last, place, whole = asked[2], Signal(48), Signal()
        within = at_most(Cat(distance[:bits], Const(0, reached - bits)), furthest[:reached])
        m.d.comb += [
            # A region may begin at any byte. An atomic's word is one of the bus, too: else it could
            # reach into another page than the one that its first byte is in.
            whole.eq(~(last.access[ATOMIC_BIT] & paged) | (place[:3] == 0)),
            ok.eq(empty_2 | (allowed & distance[bits] & furthest[reached] & within & whole)),
            place.eq(wide_sum(m, distance[: min(48, bits)], start)[: place_bits(self._config)]),
        ]
        with m.If(ready[3]):
            m.d.sync += [
                region.function.eq(last.function),
                region.mr.eq(pages_of),
                region.paged.eq(paged & ok & ~last.check_only & ~empty_2),
                region.single.eq(~ok | last.check_only | empty_2),
                region.addr.eq(Mux(paged, place, last.va[:bits])),
                region.table.eq(table),
                region.page_size.eq(page_size),
                region.two_level.eq(two_level),
                region.length.eq(last.length),
                region.remote.eq(last.remote),
                region.end.eq(last.end),
                refused.eq(valid[2] & ~ok),
            ]
            with m.If(~ok):
                m.d.sync += region.status.eq(
                    Mux(last.remote, WcStatus.REM_ACCESS_ERR.value, WcStatus.LOC_PROT_ERR.value)
                )
            with m.Else():
                m.d.sync += region.status.eq(
                    Mux(last.short, WcStatus.LOC_LEN_ERR.value, WcStatus.SUCCESS.value)
                )
        with m.If(refused & ready[3]):
            increment(m, self.key_errors)
        m.d.comb += [self.o.valid.eq(valid[3]), self.o.payload.eq(region)]
        return m

    def _index(self, request) -> Value:
        """The region's row: the key names a region of the function that asks."""
        owner = ordinal_of(self._config, request.function)
        return card_number(self._config, "mrs", owner, request.key[8:])

    def _wraps(self, request, past) -> Value:
        """Whether a request ends beyond the address space; ``past``: the sum of its length and the
        lower half of its address."""
        bits, low = self._config.address_bits, min(self._config.address_bits, 32)
        upper = Cat(past[low], request.va[low : max(low, bits)])
        ends = (upper.all() & (past[:low] != 0)) | Cat(Const(0, 1), past[low + 1 :]).any()
        return request.wrapped | ends

    def _window(self, request, row) -> tuple[Value, Value]:
        """Whether such a key is for the one that asks, and the region that has its pages."""
        number = self._index(request)
        if not self._config.windows:
            return Const(1), number
        kind = Value.cast(row.type)
        window, serves = kind[WINDOW_BIT], ~kind[KEY_BIT] | (row.qp == request.qp)
        return ~window | (request.remote & serves), Mux(window, row.parent, number)
