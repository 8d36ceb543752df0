"""What the block's configuration space says, as accesses of the card's own."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.config import NicConfig
from hdl.ports.host import BAR_CONFIG, MmioPort, MmioRequest

from .places import Places

__all__ = ["FUNCTIONS", "PATIENCE", "FunctionControl", "settings"]

#: Physical functions of the block.
FUNCTIONS = 4
#: Cycles that a function-level reset waits for the end of the device reset: 34 ms at 250 MHz, of
#: the 100 ms that it has (PCI Express Base Specification, "Function Level Reset").
PATIENCE = 1 << 23
COMMAND = abi.PCI_HEADER.offset("command")


def settings() -> data.StructLayout:
    """What a function with a driver must know of its configuration space in the block."""
    return data.StructLayout({"bus_master": 1, "intx_disable": 1, "msix_enable": 1, "msix_mask": 1})


class FunctionControl(wiring.Component):
    """Stands before the card's registers and keeps the functions with a driver, the guest functions
    and that of the network, in step with the block.

    The block answers to the configuration space that the host sees. The functions of the card have
    their own one, in BAR 7 of the host port. What the host changes in the block is written there:
    bus mastering, the mask of INTx, enable and mask of MSI-X.

    A function-level reset is handed to the function, and ends when that has forgotten everything
    and its device reset is over. A card with several functions needs its firmware for the device
    reset. Should that not come within ``patience`` cycles, the function-level reset ends without
    it: the function does no DMA of before by then, and its device status does not read 0 until the
    firmware has come.

    The first 256 bytes of the card's own configuration space are also readable in BAR 0, from
    ``places.window`` on: the virtio capabilities are there. Writes there are lost.

    Members: ``mmio``: of the adapter; ``card``: the card's; ``function_status`` (4 bits a
    function), ``msix_enable``, ``msix_mask``, ``flr_in_process`` In and ``flr_done`` Out (a bit a
    function): the block's pins of the same names behind ``cfg_``; ``flr`` Out, ``flr_clean``,
    ``flr_over`` In (a bit a function with a driver): see ``HostSide``; ``resets`` Out:
    function-level resets of these, which wraps.
    Latency: none for accesses of the host, which wait for at most one access of this component. A
    change reaches its function in at most 30 cycles. A reset takes as long as a device reset, and
    at most ``patience`` cycles more than the function needs to clear its registers.
    A reset of a function without a driver ends at once: nothing of the card belongs to it.
    Errors: none. Reset: as the functions are after theirs.
    """

    def __init__(self, *, config: NicConfig, places: Places, patience: int = PATIENCE):
        if config.management_function >= FUNCTIONS:
            raise ValueError(f"The block has {FUNCTIONS} functions: not {config.functions} guests")
        if len(places.msix) != config.driven:
            raise ValueError(f"Places must be of {config.driven} functions, not {len(places.msix)}")
        self._config, self._places, self._patience = config, places, patience
        self._functions = config.driven_functions
        super().__init__(
            {
                "mmio": Out(MmioPort()),
                "card": In(MmioPort()),
                "function_status": In(4 * FUNCTIONS),
                "msix_enable": In(FUNCTIONS),
                "msix_mask": In(FUNCTIONS),
                "flr_in_process": In(FUNCTIONS),
                "flr_done": Out(FUNCTIONS),
                "flr": Out(config.driven),
                "flr_clean": In(config.driven),
                "flr_over": In(config.driven),
                "resets": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        mmio, card, own = self.mmio, self.card, Signal(MmioRequest)
        seen = self._window(m, mmio.req.payload)
        reading, passing = Signal(), Signal()  # an answer is awaited; the host has the card
        m.d.comb += [
            card.req.payload.eq(Mux(passing, seen, own)),
            mmio.req.ready.eq(card.req.ready & passing),
            mmio.rsp.payload.eq(card.rsp.payload),
        ]
        with m.If(mmio.req.valid & mmio.req.ready & ~mmio.req.payload.write):
            m.d.sync += reading.eq(1)
        with m.Elif(mmio.rsp.valid & mmio.rsp.ready):
            m.d.sync += reading.eq(0)

        wanted, told = self._wanted(m)
        which = Signal(range(max(2, self._config.driven)))  # the one that is looked at
        differs, control = Signal(), Signal(8)  # where its control word of MSI-X is
        places = [msix + abi.MSIX_CAP.offset("message_control") for msix in self._places.msix]
        m.d.comb += [
            differs.eq(
                (Array(wanted)[which] != Array(told)[which]) & ~self.flr.bit_select(which, 1)
            ),
            own.function.eq(Array(self._functions)[which]),
            control.eq(Array(places)[which]),
        ]
        held = Signal(settings())
        with m.FSM(name="control"):
            # PASS: accesses of the host pass; ends when there is something to say and none is
            # on its way.
            with m.State("PASS"):
                m.d.comb += [
                    passing.eq(1),
                    card.req.valid.eq(mmio.req.valid),
                    mmio.rsp.valid.eq(card.rsp.valid),
                    card.rsp.ready.eq(mmio.rsp.ready),
                ]
                m.d.sync += held.eq(Array(wanted)[which])
                with m.If(mmio.req.valid | reading):
                    pass
                with m.Elif(differs):
                    m.next = "COMMAND"
                with m.Elif(which == self._config.driven - 1):
                    m.d.sync += which.eq(0)
                with m.Else():
                    m.d.sync += which.eq(which + 1)
            # COMMAND: writes the command register; ends when the card takes it.
            with m.State("COMMAND"):
                memory = int(abi.PciCommand.MEMORY_SPACE)
                m.d.comb += [
                    own.bar.eq(BAR_CONFIG),
                    own.addr.eq(COMMAND),
                    own.write.eq(1),
                    own.strb.eq(0b0011),
                    card.req.valid.eq(1),
                    own.data.eq(memory | held.bus_master << 2 | held.intx_disable << 10),
                ]
                with m.If(card.req.ready):
                    m.next = "MSIX"
            # MSIX: writes the control word of MSI-X; ends when the card takes it.
            with m.State("MSIX"):
                # The word is the upper half of one of 32 bits.
                m.d.comb += [
                    own.bar.eq(BAR_CONFIG),
                    own.addr.eq(Cat(Const(0, 2), control[2:])),
                    own.write.eq(1),
                    own.strb.eq(0b1100),
                    card.req.valid.eq(1),
                    own.data.eq(held.msix_enable << 31 | held.msix_mask << 30),
                ]
                with m.If(card.req.ready):
                    m.d.sync += Array(told)[which].eq(held)
                    m.next = "PASS"
        self._resets(m, told, passing)
        return m

    def _window(self, m: Module, request):
        """The host's request, which may be one for the card's configuration space in BAR 0."""
        seen, inside = Signal(MmioRequest), Signal()
        places = self._places
        bits = places.window_bytes.bit_length() - 1
        m.d.comb += [
            inside.eq(
                (request.bar == places.bar)
                & (request.addr[bits:] == places.window >> bits)
                & Cat(request.function == n for n in self._functions).any()
            ),
            seen.eq(request),
        ]
        with m.If(inside):
            m.d.comb += [seen.bar.eq(BAR_CONFIG), seen.addr.eq(request.addr[:bits])]
            with m.If(request.write):
                m.d.comb += seen.strb.eq(0)
        return seen

    def _wanted(self, m: Module):
        """For each function what the block says, and what the card has been told."""
        wanted, told = [], []
        for n, pf in enumerate(self._functions):
            wanted.append(Signal(settings().size, name=f"wanted{n}"))
            told.append(Signal(settings().size, name=f"told{n}"))
            says = data.View(settings(), wanted[n])
            status = self.function_status[4 * pf : 4 * pf + 4]
            m.d.sync += [
                says.bus_master.eq(status[2]),
                says.intx_disable.eq(status[3]),
                says.msix_enable.eq(self.msix_enable[pf]),
                says.msix_mask.eq(self.msix_mask[pf]),
            ]
        return wanted, told

    def _resets(self, m: Module, told, passing) -> None:
        """Function-level resets. None ends while this component writes to the card: what it writes
        to a function in reset is lost, and the function knows of nothing afterwards."""
        served = Signal(FUNCTIONS)  # the reset in process has been answered, or is being done
        m.d.sync += [served.eq(self.flr_in_process), self.flr_done.eq(0)]
        begins = self.flr_in_process & ~served
        ends, waits = Signal(self._config.driven), Signal(self._config.driven)
        for pf in range(FUNCTIONS):
            if pf not in self._functions:
                m.d.sync += self.flr_done[pf].eq(begins[pf])
        for n, pf in enumerate(self._functions):
            left = Signal(range(self._patience + 1), name=f"left{pf}")
            m.d.comb += [
                waits[n].eq((left != 0) & ~self.flr_over[n]),
                ends[n].eq(self.flr[n] & self.flr_clean[n] & ~waits[n] & passing),
            ]
            with m.If(begins[pf]):
                m.d.sync += [self.flr[n].eq(1), left.eq(self._patience)]
            with m.Elif(ends[n]):
                m.d.sync += [self.flr[n].eq(0), told[n].eq(0), self.flr_done[pf].eq(1)]
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
        m.d.sync += self.resets.eq(self.resets + sum(self.flr_done[pf] for pf in self._functions))
