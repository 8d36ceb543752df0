"""The card's registers as an AXI4-Lite slave."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from hdl.common.barrier import Barrier
from hdl.common.skid import Register
from hdl.ports.host import MmioPort

from .bus import AxiLite

__all__ = ["ADDRESS_BITS", "OFFSET_BITS", "AxiRegisters"]

#: Bits of an offset within a BAR: those of the largest one, the management function's.
OFFSET_BITS = 20
BAR_BITS, FUNCTION_BITS = 3, 3
#: Address: function, BAR, offset, from the highest bits down.
ADDRESS_BITS = FUNCTION_BITS + BAR_BITS + OFFSET_BITS


class AxiRegisters(wiring.Component):
    """Makes an access of the host port of each AXI4-Lite access.

    An address is {function, BAR, offset} of 3, 3 and 20 bits. BAR 7 is the function's configuration
    space. A read is one of a whole word.

    Members: ``axil``; ``mmio``: the host port; ``in_flight``, ``done``: of the write side.
    Waits: an access waits for the one before it. The answer of a read waits for all write bursts
    that were taken before the card gave it: what the answer tells of has then happened.
    Latency: a write 3 cycles to ``mmio``; a read the same, and 2 behind the card's answer.
    Throughput: an access in 3 cycles; reads and writes take turns.
    Errors: none. A place where nothing is reads as all ones, with OKAY. A write without strobes
    does nothing. Reset: no access on its way.
    """

    def __init__(self, *, bursts: int):
        self._bursts = bursts
        super().__init__(
            {
                "axil": In(AxiLite(ADDRESS_BITS)),
                "mmio": In(MmioPort()),
                "in_flight": In(range(bursts + 1)),
                "done": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word = data.StructLayout({"data": 32, "strb": 4})
        m.submodules.aw = aw = Register(shape=ADDRESS_BITS)
        m.submodules.w = w = Register(shape=word)
        m.submodules.ar = ar = Register(shape=ADDRESS_BITS)
        m.submodules.barrier = barrier = Barrier(bursts=self._bursts)
        axil, request = self.axil, self.mmio.req
        m.d.comb += [
            aw.i.payload.eq(axil.awaddr),
            aw.i.valid.eq(axil.awvalid),
            axil.awready.eq(aw.i.ready),
            w.i.payload.data.eq(axil.wdata),
            w.i.payload.strb.eq(axil.wstrb),
            w.i.valid.eq(axil.wvalid),
            axil.wready.eq(w.i.ready),
            ar.i.payload.eq(axil.araddr),
            ar.i.valid.eq(axil.arvalid),
            axil.arready.eq(ar.i.ready),
            barrier.in_flight.eq(self.in_flight),
            barrier.done.eq(self.done),
            request.payload.data.eq(w.o.payload.data),
        ]

        def place(address) -> None:
            """Where the access goes."""
            m.d.comb += [
                request.payload.addr.eq(Cat(Const(0, 2), address[2:OFFSET_BITS])),
                request.payload.bar.eq(address[OFFSET_BITS:]),
                request.payload.function.eq(address[OFFSET_BITS + BAR_BITS :]),
            ]

        write_next = Signal()  # the turn, when both wait
        with m.FSM(name="access"):
            # IDLE: takes a write or a read; ends with one.
            with m.State("IDLE"):
                with m.If(aw.o.valid & w.o.valid & (write_next | ~ar.o.valid)):
                    m.d.sync += write_next.eq(0)
                    m.next = "WRITE"
                with m.Elif(ar.o.valid):
                    m.d.sync += write_next.eq(1)
                    m.next = "READ"
            # WRITE: hands a write to the card; ends when that takes it, at once without strobes.
            with m.State("WRITE"):
                place(aw.o.payload)
                nothing = w.o.payload.strb == 0
                m.d.comb += [
                    request.payload.write.eq(1),
                    request.payload.strb.eq(w.o.payload.strb),
                    request.valid.eq(~nothing),
                ]
                with m.If(request.ready | nothing):
                    m.d.comb += [aw.o.ready.eq(1), w.o.ready.eq(1)]
                    m.next = "WRITTEN"
            # WRITTEN: answers a write; ends when the answer is taken.
            with m.State("WRITTEN"):
                m.d.comb += axil.bvalid.eq(1)
                with m.If(axil.bready):
                    m.next = "IDLE"
            # READ: hands a read to the card; ends when that takes it.
            with m.State("READ"):
                place(ar.o.payload)
                m.d.comb += [request.payload.strb.eq(0b1111), request.valid.eq(1)]
                with m.If(request.ready):
                    m.d.comb += ar.o.ready.eq(1)
                    m.next = "ANSWER"
            # ANSWER: waits for the card's answer; ends with it.
            with m.State("ANSWER"):
                m.d.comb += self.mmio.rsp.ready.eq(1)
                with m.If(self.mmio.rsp.valid):
                    m.d.comb += barrier.start.eq(1)
                    m.d.sync += axil.rdata.eq(self.mmio.rsp.payload)
                    m.next = "BEHIND"
            # BEHIND: waits for the writes before the answer, then gives it; ends when it is taken.
            with m.State("BEHIND"):
                m.d.comb += axil.rvalid.eq(barrier.passed)
                with m.If(axil.rvalid & axil.rready):
                    m.next = "IDLE"
        return m
