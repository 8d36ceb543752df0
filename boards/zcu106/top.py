"""The ZCU106's top: core, processor, MAC, and the resets between their clocks."""

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from boards.blocks import core_block, place
from boards.zcu106.blocks import IRQS, MAC, MAC_TIES, PROCESSOR, WIDTH
from hdl.axi_nic import MAC_RX, MAC_TX, AxiNic
from hdl.common.crossing import ResetSequencer
from hdl.config import NicConfig

__all__ = [
    "CONFIG",
    "CORE",
    "MAC_HZ",
    "PARAMETERS",
    "SLOW_HZ",
    "WINDOW",
    "PulseStretcher",
    "Zcu106Top",
]

#: 64 bits at 200 MHz carry 12.8 Gb/s. Up to 64 reads are in flight.
CONFIG = NicConfig(width=WIDTH, clock_hz=200_000_000, qps=64, read_tags=64)
#: The MAC's clocks (10.3125 Gb/s / 66), and the one of the transceiver's own registers, Hz.
MAC_HZ, SLOW_HZ = 156_250_000, 100_000_000
#: Words of this page are interrupts. No DMA goes there: it is the processor's own peripherals.
WINDOW = 0xFEE0_0000
#: The core's arguments.
PARAMETERS: dict[str, Any] = {
    "config": CONFIG,
    "mac_clocks": True,
    "interrupts": IRQS,
    "interrupt_window": WINDOW,
}
#: Cycles of a pulse that the interrupt controller's clock surely sees.
STRETCH = 16


CORE = core_block(AxiNic(**PARAMETERS), domains=("sync", MAC_TX, MAC_RX), separator="_")


class PulseStretcher(wiring.Component):
    """Makes pulses of ``cycles`` cycles of pulses of one, with pauses as long between them.

    Parameters: ``width``: wires; ``cycles``, a power of two.
    Members: ``i``, ``o``, a bit for each wire. Pulses that come before a pause has ended join in
    one pulse after it: each is followed by a rising edge. Latency: 1 cycle. Reset: forgets pulses.
    """

    def __init__(self, *, width: int, cycles: int):
        if cycles < 2 or cycles & (cycles - 1):
            raise ValueError(f"Cycles must be a power of two, at least 2, not {cycles!r}")
        self._cycles = cycles
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        waits = Signal(len(self.i))  # pulses without an edge of their own so far
        for n, pulse in enumerate(self.i):
            # Counts the pulse down, then the pause.
            left = Signal(range(2 * self._cycles), name=f"left_{n}")
            high = Signal(name=f"high_{n}")
            m.d.comb += self.o[n].eq(high)
            m.d.sync += [waits[n].eq(waits[n] | pulse), high.eq(left > self._cycles)]
            with m.If(left.any()):
                m.d.sync += left.eq(left - 1)
            with m.Elif(waits[n] | pulse):
                m.d.sync += [left.eq(2 * self._cycles - 1), high.eq(1), waits[n].eq(0)]
        return m


class Zcu106Top(wiring.Component):
    """Members are the board's pins, resource_subsignal of ``Zcu106Platform``.

    The processor's first fabric clock is ``sync``; the MAC makes ``mac_tx`` and ``mac_rx``.
    Registers are at 0xA0000000 of the processor. LEDs: the MAC has a link; the core is not in
    reset. Errors: see ``CmacCrossing``, which the core has; the card's registers have its counters.
    Reset: the processor's, for all clocks together; it ends when all of them run.
    """

    def __init__(self):
        inputs = ("sfp_rx_p", "sfp_rx_n", "mgt_refclk_p", "mgt_refclk_n")
        outputs = ("sfp_tx_p", "sfp_tx_n", "sfp_tx_disable_b", "led_link", "led_running")
        super().__init__({n: In(1) for n in inputs} | {n: Out(1) for n in outputs})

    def elaborate(self, platform):
        m = Module()
        core, processor, mac = (place(m, block) for block in (CORE, PROCESSOR, MAC))
        self._clocks(m, processor, mac, core)
        for name in PROCESSOR.ports:
            bus, _, signal = name.partition("_")
            if bus in ("memory", "registers"):
                own = f"{'m_axi' if bus == 'memory' else 's_axil'}_{signal}"
                processor.join(name, core, own)
        for name in ("tdata", "tkeep", "tlast", "tuser", "tvalid", "tready"):
            core.join(f"m_axis_tx_{name}", mac, f"tx_axis_{name}_0")
            if name != "tready":
                mac.join(f"rx_axis_{name}_0", core, f"s_axis_rx_{name}")
        mac.tie(MAC_TIES)
        m.submodules.stretcher = stretcher = PulseStretcher(width=IRQS, cycles=STRETCH)
        m.d.comb += [
            *(mac[f"gt_rx{pole}_in_0"].eq(getattr(self, f"sfp_rx_{pole}")) for pole in "pn"),
            *(getattr(self, f"sfp_tx_{pole}").eq(mac[f"gt_tx{pole}_out_0"]) for pole in "pn"),
            *(mac[f"gt_refclk_{pole}"].eq(getattr(self, f"mgt_refclk_{pole}")) for pole in "pn"),
            core["link_up"].eq(mac["stat_rx_status_0"]),
            stretcher.i.eq(core["irq"]),
            processor["irq"].eq(stretcher.o),
            self.sfp_tx_disable_b.eq(1),
            self.led_link.eq(mac["stat_rx_status_0"]),
            self.led_running.eq(~ResetSignal()),
        ]
        return m

    @staticmethod
    def _clocks(m: Module, processor, mac, core) -> None:
        """Clock domains, and resets that begin together and end in turn."""
        for name in ("sync", MAC_TX, MAC_RX):
            m.domains += ClockDomain(name)
        m.submodules.resets = resets = ResetSequencer(domains=("sync", MAC_TX, MAC_RX))
        m.d.comb += [
            ClockSignal().eq(processor["clk"]),
            ClockSignal(MAC_TX).eq(mac["tx_clk_out_0"]),
            ClockSignal(MAC_RX).eq(mac["rx_clk_out_0"]),
            resets.request.eq(~processor["resetn"]),
            mac["rx_core_clk_0"].eq(mac["rx_clk_out_0"]),
            mac["dclk"].eq(processor["slow_clk"]),
            mac["sys_reset"].eq(~processor["resetn"]),
        ]
        for domain, prefix in (("sync", ""), (MAC_TX, "mac_tx_"), (MAC_RX, "mac_rx_")):
            m.d.comb += [
                ResetSignal(domain).eq(getattr(resets, f"{domain}_rst")),
                core[f"{prefix}clk"].eq(ClockSignal(domain)),
                core[f"{prefix}rst"].eq(ResetSignal(domain)),
            ]
