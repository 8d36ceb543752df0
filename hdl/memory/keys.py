"""Key check: may these bytes be touched with this key, and where do they begin?"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.count import COUNT, increment
from hdl.common.sums import at_most, wide_difference, wide_sum
from hdl.config import NicConfig
from hdl.ports.keys import KeyKind, decode_key, indirect_kinds
from hdl.ports.rows import MrRow
from hdl.wire.opcodes import ATOMIC_BYTES

from .resolve import region_number
from .types import (
    ACCESS_LOCAL_WRITE,
    ACCESS_REMOTE_ATOMIC,
    ACCESS_REMOTE_READ,
    KeyedRequest,
    Region,
    TranslateRequest,
    place_bits,
)

__all__ = ["KeyCheck"]

#: The bit of ``access`` that an atomic needs.
ATOMIC_BIT = ACCESS_REMOTE_ATOMIC.bit_length() - 1


class KeyCheck(wiring.Component):
    """Compares each request with the row of its memory region.

    Spec: IBTA vol 1, 10.6.3 (protection), virtio-rdma VR-3.18 (keys: region number << 8 | tag).
    Passed: the region exists, its tag, function and PD are those of the request, it grants all the
    access bits, and va .. va + length lies within it without wrapping. The word of an atomic, or of
    an ATOMIC WRITE, begins at a multiple of 8 of the bus as well. A FLUSH of a whole region is a
    request of its first byte, which a region with the addresses of the bus does not have. A memory
    window is for peers alone, one of type 2 for one QP's. A request of 0 bytes passes unchecked.
    An indirect key passes with ``check_only`` alone. Under the key of an entry no remote right is
    needed, as the indirect key has granted it: who changes memory needs local write, who reads it
    nothing. No such key is a window's, and an atomic's word lies in one entry.
    Members: ``i`` stream of KeyedRequest, ``o`` stream of Region, ``key_errors`` requests that
    failed (``COUNT`` bits, wraps).
    Latency: 3 cycles. Throughput: one request per cycle.
    Errors: status LOC_PROT_ERR or, when ``remote``, REM_ACCESS_ERR. A region with pages of 2**47
    bytes or more fails. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._indirect = config, bool(indirect_kinds(config))
        super().__init__(
            {
                "i": In(stream.Signature(KeyedRequest)),
                "o": Out(stream.Signature(Region)),
                "key_errors": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        valid = [Signal(name=f"valid{n}") for n in range(3)]
        ready = [Signal(name=f"ready{n}") for n in range(4)]
        m.d.comb += [self.i.ready.eq(ready[0]), ready[3].eq(self.o.ready)]
        for n in range(3):
            m.d.comb += ready[n].eq(~valid[n] | ready[n + 1])
            with m.If(ready[n]):
                m.d.sync += valid[n].eq(self.i.valid if n == 0 else valid[n - 1])
        asked = [Signal(TranslateRequest, name=f"asked{n}", reset_less=True) for n in range(2)]

        # Register the row; meanwhile the request's end, in the lower half of the address space.
        row, inside, empty = Signal(MrRow, reset_less=True), Signal(), Signal()
        bits = self._config.address_bits
        past = Signal(33, reset_less=True)
        request = self.i.p.request
        past_0 = wide_sum(m, request.va[: min(bits, 32)], request.length)
        with m.If(ready[0]):
            m.d.sync += [
                asked[0].eq(request),
                row.eq(self.i.p.row),
                inside.eq(request.key[8:] < self._config.guest.mrs),
                past.eq(past_0),
                empty.eq(request.length == 0),
            ]

        # Compare what needs no sum; distance from the region's start, and how far it may be.
        reached = max(bits, 32)  # a request has a length of 32 bits
        allowed, distance = Signal(), Signal(bits + 1, reset_less=True)
        furthest, wraps = Signal(reached + 1, reset_less=True), Signal()
        start, table = Signal(48, reset_less=True), Signal(58, reset_less=True)
        page_size, two_level = Signal(2, reset_less=True), Signal(reset_less=True)
        paged, empty_2 = Signal(), Signal()
        pages_of = Signal(16, reset_less=True)  # the region whose page list it is
        kind = decode_key(self._config, row.type)
        usable, number = self._window(asked[0], row, kind)
        m.d.comb += wraps.eq(self._wraps(asked[0], past))
        start_1 = row.va[:bits]
        if self._config.placement:
            start_1 &= (~asked[0].whole).replicate(bits)
        distance_1 = wide_difference(m, asked[0].va[:bits], start_1)
        reach = Cat(row.length[:bits], kind.bus.replicate(reached))[:reached]
        furthest_1 = wide_difference(m, reach, asked[0].length)
        with m.If(ready[1]):
            m.d.sync += [
                asked[1].eq(asked[0]),
                allowed.eq(
                    inside
                    & self._resolves(asked[0], row, kind)
                    & (row.tag == asked[0].key[:8])
                    & (row.function == asked[0].function)
                    & (row.pd == asked[0].pd)
                    & ((self._needs(asked[0]) & ~row.access) == 0)
                    & self._flushes(asked[0], row, kind)
                    & ~wraps
                    & usable
                ),
                pages_of.eq(number),
                paged.eq(kind.pages),
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
        last, place, whole = asked[1], Signal(48), Signal()
        within = at_most(Cat(distance[:bits], Const(0, reached - bits)), furthest[:reached])
        m.d.comb += [
            whole.eq(self._is_whole(last, paged, place)),
            ok.eq(empty_2 | (allowed & distance[bits] & furthest[reached] & within & whole)),
            place.eq(wide_sum(m, distance[: min(48, bits)], start)[: place_bits(self._config)]),
        ]
        with m.If(ready[2]):
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
                refused.eq(valid[1] & ~ok),
            ]
            with m.If(~ok):
                m.d.sync += region.status.eq(
                    Mux(last.remote, WcStatus.REM_ACCESS_ERR.value, WcStatus.LOC_PROT_ERR.value)
                )
            with m.Else():
                m.d.sync += region.status.eq(
                    Mux(last.short, WcStatus.LOC_LEN_ERR.value, WcStatus.SUCCESS.value)
                )
        with m.If(refused & ready[2]):
            increment(m, self.key_errors)
        m.d.comb += [self.o.valid.eq(valid[2]), self.o.payload.eq(region)]
        return m

    def _resolves(self, request, row, kind: KeyKind) -> Value:
        """Whether a key of that kind may be used for such a request."""
        direct = kind.bus | (kind.pages & (row.length[47:] == 0))
        return direct | (kind.entries & request.check_only) if self._indirect else direct

    def _needs(self, request) -> Value:
        """The access bits that the row must have."""
        if not self._indirect:
            return request.access
        changes = (request.access & ~ACCESS_REMOTE_READ) != 0
        return Mux(request.entry, Mux(changes, ACCESS_LOCAL_WRITE, 0), request.access)

    def _word(self, request) -> Value:
        """Whether it is that of an ATOMIC WRITE."""
        return request.word if self._config.placement else Const(0, 1)

    def _flushes(self, request, row, kind: KeyKind) -> Value:
        """Whether the row lets a peer ask for what a FLUSH asks for; of other requests nothing. All
        of the bus has no first byte of which anybody says that it may be read."""
        if not self._config.placement:
            return Const(1)
        granted = (request.flush.as_value() & ~row.flush.as_value()) == 0
        return granted & ~(kind.bus & request.whole)

    def _is_whole(self, request, paged: Value, place: Value) -> Value:
        """Whether the bytes of an atomic are a word of the bus; those of others always are.

        A region may begin at any byte, and its word could reach into another page than the one that
        its first byte is in. Addresses of the bus come from peers, who have been asked for a
        multiple of 8, or from entries, which may begin and end anywhere.
        """
        atomic, aligned = request.access[ATOMIC_BIT] | self._word(request), place[:3] == 0
        if not self._indirect:
            return ~(atomic & paged) | aligned
        atomic &= ~request.check_only
        cut = request.entry & (request.length != ATOMIC_BYTES)
        return ~(atomic & (paged | request.entry)) | (aligned & ~cut)

    def _wraps(self, request, past) -> Value:
        """Whether a request ends beyond the address space; ``past``: the sum of its length and the
        lower half of its address."""
        bits, low = self._config.address_bits, min(self._config.address_bits, 32)
        upper = Cat(past[low], request.va[low : max(low, bits)])
        ends = (upper.all() & (past[:low] != 0)) | Cat(Const(0, 1), past[low + 1 :]).any()
        return request.wrapped | ends

    def _window(self, request, row, kind: KeyKind) -> tuple[Value, Value]:
        """Whether such a key is for the one that asks, and the region that has its pages."""
        number = region_number(self._config, request)
        if not self._config.windows:
            return Const(1), number
        peer = request.remote & ~request.entry if self._indirect else request.remote
        serves = ~kind.changes | (row.qp == request.qp)
        return ~kind.window | (peer & serves), Mux(kind.window, row.parent, number)
