"""From the card's register port to the functions."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hdl.config import FUNCTION_MANAGEMENT, FUNCTION_RDMA
from hdl.ports.host import BAR_CONFIG, MmioPort, MmioRequest
from hdl.ports.tables import CSR_ADDRESS_BITS, CsrBus

from .config_space import ConfigSpace, management_image
from .local import NOTHING_THERE, FunctionBus

__all__ = ["MmioRouter"]

WHOLE_WORD = 0b1111


class MmioRouter(wiring.Component):
    """Sends each access to its function; the function number alone opens the management registers.

    Members: ``mmio`` (card's edge); ``guest``: the RDMA function, all of its BARs and its
    configuration space; ``csr``: BAR 0 of the management function, whose configuration space is
    here.
    Latency: 2 cycles to a function and 2 back. Throughput: one access at a time, a write at most
    every 2 cycles.
    Errors: no such function or BAR, and a register address beyond 20 bits: reads answer 0xFFFFFFFF,
    writes are lost; so are writes of less than a word to the management registers.
    A read waits for nothing but its own function, which answers within a bounded time.
    """

    def __init__(self):
        super().__init__(
            {
                "mmio": Out(MmioPort()),
                "guest": Out(FunctionBus()),
                "csr": Out(CsrBus()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.space = space = ConfigSpace(image=management_image())
        request = Signal(MmioRequest, reset_less=True)
        answer = Signal(32, reset_less=True)
        mmio, guest, csr = self.mmio, self.guest, self.csr

        to_guest, to_csr, to_space = Signal(), Signal(), Signal()
        managed = request.function == FUNCTION_MANAGEMENT
        m.d.comb += [
            to_guest.eq(request.function == FUNCTION_RDMA),
            to_csr.eq(
                managed
                & (request.bar == 0)
                & (request.addr[CSR_ADDRESS_BITS:] == 0)
                & (~request.write | (request.strb == WHOLE_WORD))
            ),
            to_space.eq(managed & (request.bar == BAR_CONFIG)),
            guest.req.payload.bar.eq(request.bar),
            guest.req.payload.addr.eq(request.addr),
            guest.req.payload.write.eq(request.write),
            guest.req.payload.strb.eq(request.strb),
            guest.req.payload.data.eq(request.data),
            csr.req.payload.addr.eq(request.addr),
            csr.req.payload.write.eq(request.write),
            csr.req.payload.data.eq(request.data),
            space.port.addr.eq(request.addr),
            space.port.write.eq(request.write),
            space.port.strb.eq(request.strb),
            space.port.data.eq(request.data),
            mmio.rsp.payload.eq(answer),
        ]

        with m.FSM(name="access"):
            with m.State("IDLE"):
                m.d.comb += mmio.req.ready.eq(1)
                with m.If(mmio.req.valid):
                    m.d.sync += request.eq(mmio.req.payload)
                    m.next = "ROUTE"
            with m.State("ROUTE"):
                with m.If(to_guest):
                    m.d.comb += guest.req.valid.eq(1)
                    with m.If(guest.req.ready):
                        with m.If(request.write):
                            m.next = "IDLE"
                        with m.Else():
                            m.next = "GUEST"
                with m.Elif(to_csr):
                    m.d.comb += csr.req.valid.eq(1)
                    with m.If(csr.req.ready):
                        m.next = "CSR"
                with m.Elif(to_space):
                    m.d.comb += space.port.start.eq(1)
                    m.next = "SPACE"
                with m.Else():
                    m.d.sync += answer.eq(NOTHING_THERE)
                    with m.If(request.write):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "RESPOND"
            with m.State("GUEST"):
                m.d.comb += guest.rsp.ready.eq(1)
                with m.If(guest.rsp.valid):
                    m.d.sync += answer.eq(guest.rsp.payload)
                    m.next = "RESPOND"
            with m.State("CSR"):
                m.d.comb += csr.rsp.ready.eq(1)
                with m.If(csr.rsp.valid):
                    m.d.sync += answer.eq(csr.rsp.payload)
                    with m.If(request.write):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "RESPOND"
            with m.State("SPACE"):
                with m.If(space.port.done):
                    m.d.sync += answer.eq(space.port.read_data)
                    with m.If(request.write):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "RESPOND"
            with m.State("RESPOND"):
                m.d.comb += mmio.rsp.valid.eq(1)
                with m.If(mmio.rsp.ready):
                    m.next = "IDLE"
        return m
