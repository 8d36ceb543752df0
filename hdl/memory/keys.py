"""Key check: may these bytes be touched with this key, and where do they begin?"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.config import NicConfig
from hdl.ports.rows import MrRow, MrType
from hdl.ports.tables import TableRead

from .types import Region, TranslateRequest

__all__ = ["KeyCheck"]


class KeyCheck(wiring.Component):
    """Compares each request with the row of its memory region.

    Spec: IBTA vol 1, 10.6.3 (protection), virtio-rdma VR-3.18 (keys: region number << 8 | tag).
    Passed: the region exists, its tag, function and PD are those of the request, it grants all the
    access bits, and va .. va + length lies within it without wrapping. A request of 0 bytes passes
    unchecked.
    Members: ``i`` stream of TranslateRequest, ``o`` stream of Region, ``mr`` read port of the
    table, ``key_errors`` requests that failed (32 bit, wraps).
    Latency: 4 cycles. Throughput: one request per cycle. ``i.ready`` follows ``o.ready``.
    Errors: status LOC_PROT_ERR or, when ``remote``, REM_ACCESS_ERR. A region with pages of 2**47
    bytes or more fails. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._mrs = config.mrs
        super().__init__(
            {
                "i": In(stream.Signature(TranslateRequest)),
                "o": Out(stream.Signature(Region)),
                "mr": Out(TableRead(16, MrRow)),
                "key_errors": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        valid = [Signal(name=f"valid{n}") for n in range(4)]
        ready = [Signal(name=f"ready{n}") for n in range(5)]
        m.d.comb += ready[4].eq(self.o.ready)
        for n in range(4):
            m.d.comb += ready[n].eq(~valid[n] | ready[n + 1])
            with m.If(ready[n]):
                m.d.sync += valid[n].eq(self.i.valid if n == 0 else valid[n - 1])
        asked = [Signal(TranslateRequest, name=f"asked{n}", reset_less=True) for n in range(3)]

        # Take the request, read the row.
        m.d.comb += [
            self.i.ready.eq(ready[0]),
            self.mr.index.eq(self.i.p.key[8:24]),
            self.mr.enable.eq(self.i.valid & ready[0]),
        ]
        with m.If(ready[0]):
            m.d.sync += asked[0].eq(self.i.payload)

        # Register the row; meanwhile the request's own sums.
        row, inside, past = Signal(MrRow, reset_less=True), Signal(), Signal(65, reset_less=True)
        empty = Signal()
        with m.If(ready[1]):
            m.d.sync += [
                asked[1].eq(asked[0]),
                row.eq(self.mr.row),
                inside.eq(asked[0].key[8:] < self._mrs),
                past.eq(asked[0].va + asked[0].length),
                empty.eq(asked[0].length == 0),
            ]

        # Compare what needs no sum; distance from the region's start, and its end.
        allowed, distance = Signal(), Signal(65, reset_less=True)
        row_past, past_2 = Signal(65, reset_less=True), Signal(65, reset_less=True)
        start, table = Signal(15, reset_less=True), Signal(58, reset_less=True)
        paged, empty_2 = Signal(), Signal()
        with m.If(ready[2]):
            m.d.sync += [
                asked[2].eq(asked[1]),
                allowed.eq(
                    inside
                    & (
                        (row.type == MrType.DMA)
                        | ((row.type == MrType.PAGES) & (row.length[47:] == 0))
                    )
                    & (row.tag == asked[1].key[:8])
                    & (row.function == asked[1].function)
                    & (row.pd == asked[1].pd)
                    & ((asked[1].access & ~row.access) == 0)
                    & (~past[64] | (past[:64] == 0))
                ),
                paged.eq(row.type == MrType.PAGES),
                distance.eq(asked[1].va - row.va),
                row_past.eq(row.va + row.length),
                past_2.eq(past),
                # where the region begins, in pages of list entries of the 64-byte block
                start.eq(Cat(row.first_offset, row.table[3:6])),
                table.eq(row.table[6:]),
                empty_2.eq(empty),
            ]

        # Verdict.
        ok, region = Signal(), Signal(Region, reset_less=True)
        last = asked[2]
        m.d.comb += ok.eq(empty_2 | (allowed & ~distance[64] & (past_2 <= row_past)))
        with m.If(ready[3]):
            m.d.sync += [
                region.function.eq(last.function),
                region.mr.eq(last.key[8:24]),
                region.paged.eq(paged & ok & ~last.check_only & ~empty_2),
                region.single.eq(~ok | last.check_only | empty_2),
                region.addr.eq(Mux(paged, (distance[:48] + start)[:48], last.va)),
                region.table.eq(table),
                region.length.eq(last.length),
                region.remote.eq(last.remote),
                region.end.eq(last.end),
                region.status.eq(
                    Mux(
                        ok,
                        WcStatus.SUCCESS.value,
                        Mux(
                            last.remote, WcStatus.REM_ACCESS_ERR.value, WcStatus.LOC_PROT_ERR.value
                        ),
                    )
                ),
            ]
            with m.If(valid[2] & ~ok):
                m.d.sync += self.key_errors.eq(self.key_errors + 1)
        m.d.comb += [self.o.valid.eq(valid[3]), self.o.payload.eq(region)]
        return m
