"""From the register bus to the blocks."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.tables import CSR_ADDRESS_BITS, CsrBus

from .block import UNMAPPED, BlockBus
from .describe import BLOCK_BYTES

__all__ = ["CsrFabric"]

PAGE_LOW = ceil_log2(BLOCK_BYTES)


class CsrFabric(wiring.Component):
    """Decodes the page of an address to a block; one access at a time.

    Parameters: ``pages``: name of the block -> page number, or a range of them; a member of that
    name per block. A range of n pages begins at a multiple of n, rounded up to a power of two.
    Latency: the response is valid 3 cycles after the request was taken, one cycle later for a
    table's window, and as much later for a remote register as its owner needs. Throughput: one
    access in 4 cycles.
    Errors: a page without a block, or an address that is no multiple of 4, answers 0xFFFFFFFF,
    reads and writes alike, and loses the write. The response to any other write says nothing.
    """

    def __init__(self, *, pages: dict[str, int | range]):
        self._pages = {
            name: page if isinstance(page, range) else range(page, page + 1)
            for name, page in pages.items()
        }
        for name, numbers in self._pages.items():
            if not 0 <= numbers[0] <= numbers[-1] < 1 << (CSR_ADDRESS_BITS - PAGE_LOW):
                raise ValueError(f"Page of {name!r} is beyond the address space: {pages[name]!r}")
            if numbers[0] % (1 << ceil_log2(len(numbers))):
                raise ValueError(f"Pages of {name!r} must be aligned, not {pages[name]!r}")
        taken = [page for numbers in self._pages.values() for page in numbers]
        if len(set(taken)) != len(taken):
            raise ValueError(f"Pages must differ, not {pages!r}")
        blocks = {name: Out(BlockBus(pages=len(n))) for name, n in self._pages.items()}
        super().__init__({"bus": In(CsrBus())} | blocks)

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        addr = Signal(CSR_ADDRESS_BITS)
        write, data = Signal(), Signal(32)
        enable, aligned = Signal(), Signal()
        # One bit for each block, because the data of some come late, out of a RAM.
        asked = Signal(len(self._pages))
        answers = (
            getattr(self, name).read_data & asked[n].replicate(32)
            for n, name in enumerate(self._pages)
        )
        m.d.comb += aligned.eq(addr[:2] == 0)
        m.d.sync += asked.eq(0)
        with m.Switch(addr[PAGE_LOW:]):
            for n, (name, numbers) in enumerate(self._pages.items()):
                block = getattr(self, name)
                m.d.comb += [
                    block.index.eq(addr[2:]),
                    block.write.eq(write),
                    block.data.eq(data),
                ]
                with m.Case(*numbers):
                    m.d.comb += block.enable.eq(enable & aligned)
                    m.d.sync += asked[n].eq(aligned)

        with m.FSM(name="access"):
            with m.State("IDLE"):
                # IDLE: waits for an access; ends when it has been taken.
                m.d.comb += bus.req.ready.eq(1)
                with m.If(bus.req.valid):
                    m.d.sync += [
                        addr.eq(bus.req.payload.addr),
                        write.eq(bus.req.payload.write),
                        data.eq(bus.req.payload.data),
                    ]
                    m.next = "ENABLE"
            with m.State("ENABLE"):
                # ENABLE: enables the blocks whose page it is in; one cycle.
                m.d.comb += enable.eq(1)
                m.next = "COLLECT"
            with m.State("COLLECT"):
                # COLLECT: registers what they answer; ends when none of them asks to wait.
                m.d.sync += bus.rsp.payload.eq(reduce(or_, answers, Mux(asked.any(), 0, UNMAPPED)))
                with m.If(~Cat(getattr(self, name).wait for name in self._pages).any()):
                    m.next = "RESPOND"
            with m.State("RESPOND"):
                # RESPOND: answers the access; ends when the answer is taken.
                m.d.comb += bus.rsp.valid.eq(1)
                with m.If(bus.rsp.ready):
                    m.next = "IDLE"
        return m
