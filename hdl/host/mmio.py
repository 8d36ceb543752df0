"""From the card's register port to the functions."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hdl.common.tables import CSR_ADDRESS_BITS, CsrBus
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from hdl.ports.host import BAR_CONFIG, MmioPort, MmioRequest

from .config_space import ConfigSpace, management_image
from .local import NOTHING_THERE, FunctionBus

__all__ = ["MmioRouter"]

WHOLE_WORD = 0b1111


class MmioRouter(wiring.Component):
    """Sends each access to its function; the function number alone opens the management registers.

    Members: ``mmio`` (card's edge); ``guest0``..: the guest functions, all of their BARs and their
    configuration spaces, and ``network``: so the network function, if there is one; ``csr``: BAR 0
    of the management function, whose configuration space is here.
    Latency: 2 cycles to a function and 2 back. Throughput: one access at a time, a write at most
    every 2 cycles.
    Errors: no such function or BAR, and a register address beyond 20 bits: reads answer 0xFFFFFFFF,
    writes are lost; so are writes of less than a word to the management registers.
    A read waits for nothing but its own function, which answers within a bounded time.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {"mmio": Out(MmioPort()), "csr": Out(CsrBus())}
            | {f"guest{n}": Out(FunctionBus()) for n in range(config.functions)}
            | ({"network": Out(FunctionBus())} if config.network else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.space = space = ConfigSpace(image=management_image())
        request = Signal(MmioRequest, reset_less=True)
        answer = Signal(32, reset_less=True)
        mmio, csr = self.mmio, self.csr
        count = self._config.functions
        guests = [getattr(self, f"guest{n}") for n in range(count)]
        numbers = [FUNCTION_RDMA + n for n in range(count)]
        if self._config.network:
            guests, numbers = [*guests, self.network], [*numbers, FUNCTION_NET]

        to_guest, to_csr, to_space = Signal(len(guests)), Signal(), Signal()
        managed = request.function == self._config.management_function
        m.d.comb += [
            to_csr.eq(
                managed
                & (request.bar == 0)
                & (request.addr[CSR_ADDRESS_BITS:] == 0)
                & (~request.write | (request.strb == WHOLE_WORD))
            ),
            to_space.eq(managed & (request.bar == BAR_CONFIG)),
            csr.req.payload.addr.eq(request.addr),
            csr.req.payload.write.eq(request.write),
            csr.req.payload.data.eq(request.data),
            space.port.addr.eq(request.addr),
            space.port.write.eq(request.write),
            space.port.strb.eq(request.strb),
            space.port.data.eq(request.data),
            mmio.rsp.payload.eq(answer),
        ]

        taken, answered, word = (
            Signal(),
            Signal(),
            Signal(32),
        )  # by the function that is meant
        for n, guest in enumerate(guests):
            m.d.comb += to_guest[n].eq(request.function == numbers[n])
            m.d.comb += [
                guest.req.payload[name].eq(request[name])
                for name in ("bar", "addr", "write", "strb", "data")
            ]
            with m.If(to_guest[n]):
                m.d.comb += [
                    taken.eq(guest.req.ready),
                    answered.eq(guest.rsp.valid),
                    word.eq(guest.rsp.payload),
                ]

        with m.FSM(name="access"):
            # IDLE: takes an access; ends with one.
            with m.State("IDLE"):
                m.d.comb += mmio.req.ready.eq(1)
                with m.If(mmio.req.valid):
                    m.d.sync += request.eq(mmio.req.payload)
                    m.next = "ROUTE"
            # ROUTE: hands it to its function; ends when that takes it, at once when there is none.
            with m.State("ROUTE"):
                with m.If(to_guest.any()):
                    m.d.comb += [guest.req.valid.eq(to_guest[n]) for n, guest in enumerate(guests)]
                    with m.If(taken):
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
            # GUEST: waits for the answer of a guest or network function; ends with it.
            with m.State("GUEST"):
                m.d.comb += [guest.rsp.ready.eq(to_guest[n]) for n, guest in enumerate(guests)]
                with m.If(answered):
                    m.d.sync += answer.eq(word)
                    m.next = "RESPOND"
            # CSR: waits for the answer of the registers; ends with it.
            with m.State("CSR"):
                m.d.comb += csr.rsp.ready.eq(1)
                with m.If(csr.rsp.valid):
                    m.d.sync += answer.eq(csr.rsp.payload)
                    with m.If(request.write):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "RESPOND"
            # SPACE: waits for the management function's configuration space; ends with its answer.
            with m.State("SPACE"):
                with m.If(space.port.done):
                    m.d.sync += answer.eq(space.port.read_data)
                    with m.If(request.write):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "RESPOND"
            # RESPOND: answers a read; ends when the answer is taken.
            with m.State("RESPOND"):
                m.d.comb += mmio.rsp.valid.eq(1)
                with m.If(mmio.rsp.ready):
                    m.next = "IDLE"
        return m
