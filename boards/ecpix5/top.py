"""The ECPIX-5's top: clocks, resets and pins around ``Ecpix5Card``."""

from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.lib import io
from amaranth.lib.wiring import connect

from boards.ecpix5.card import CONFIG, Ecpix5Card
from hdl.common.crossing import ResetSequencer
from hdl.mac.rgmii import Rgmii, RgmiiPins

__all__ = ["Ecpix5Top"]

#: The PHY (KSZ9031) wants its reset for 10 ms: cycles of the core's clock, a power of two.
PHY_RESET_CYCLES = 1 << 20
#: Of the PLL: 100 MHz / 4 x 5 x 4 = 500 MHz, divided for each output.
MAC_HZ, VCO_HZ = 125_000_000, 500_000_000


class Ecpix5Top(Elaboratable):
    """Core at 50 MHz, MAC at 125 MHz, TXC a quarter of a cycle behind it; RXC from the PHY.

    The reset button resets all but the PHY. A PHY without RXC holds nobody else in reset.
    Parameters: ``card``: what is between UART and PHY.
    """

    def __init__(self, card=None):
        self._card = card or Ecpix5Card()

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self._card
        ports = platform.request(
            "eth_rgmii",
            0,
            dir={
                name: "-"
                for name in (
                    *("rst", "tx_clk", "tx_ctl", "tx_data"),
                    *("rx_clk", "rx_ctl", "rx_data"),
                )
            },
        )
        self._clocks(m, platform, ports.rx_clk)
        pins = RgmiiPins(
            tx_clk=ports.tx_clk,
            tx_ctl=ports.tx_ctl,
            tx_data=ports.tx_data,
            rx_ctl=ports.rx_ctl,
            rx_data=ports.rx_data,
        )
        m.submodules.rgmii = rgmii = Rgmii(pins=pins)
        connect(m, card.to_phy, rgmii.tx)
        connect(m, rgmii.rx, card.from_phy)
        uart = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        led = platform.request("led", 0, dir={"running": "-", "phy": "-"})
        m.submodules.uart_rx = uart_rx = io.Buffer("i", uart.rx)
        m.submodules.uart_tx = uart_tx = io.Buffer("o", uart.tx)
        m.submodules.running = running = io.Buffer("o", led.running)
        m.submodules.phy_led = phy_led = io.Buffer("o", led.phy)
        m.submodules.phy_reset = phy_reset = io.Buffer("o", ports.rst)
        count = Signal(range(PHY_RESET_CYCLES), reset_less=True)
        phy_runs = Signal(reset_less=True)
        with m.If(~phy_runs):
            m.d.sync += [count.eq(count + 1), phy_runs.eq(count == PHY_RESET_CYCLES - 1)]
        m.d.comb += [
            card.rx.eq(uart_rx.i),
            uart_tx.o.eq(card.tx),
            running.o.eq(~ResetSignal()),
            phy_led.o.eq(phy_runs),
            phy_reset.o.eq(~phy_runs),
        ]
        return m

    def _clocks(self, m: Module, platform, rx_clk) -> None:
        """The PLL, RXC, and the resets of their domains."""
        for name in ("sync", "mac_tx", "mac_txc", "mac_rx"):
            m.domains += ClockDomain(name, reset_less=name == "mac_txc")
        m.submodules.clk100 = clk100 = io.Buffer("i", platform.request("clk100", 0, dir="-"))
        m.submodules.rxc = rxc = io.Buffer("i", rx_clk)
        m.submodules.button = button = io.Buffer("i", platform.request("rst", 0, dir="-"))
        locked = Signal()
        mac_divisor, core_divisor = VCO_HZ // MAC_HZ, VCO_HZ // CONFIG.clock_hz
        # CPHASE delays an output by cycles of the VCO; DIV - 1 stands for none (TN1263).
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=4,
            p_CLKFB_DIV=5,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=mac_divisor,
            p_CLKOP_CPHASE=mac_divisor - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=mac_divisor,
            p_CLKOS_CPHASE=mac_divisor - 1 + mac_divisor // 4,
            p_CLKOS_FPHASE=0,
            p_CLKOS2_ENABLE="ENABLED",
            p_CLKOS2_DIV=core_divisor,
            p_CLKOS2_CPHASE=core_divisor - 1,
            p_CLKOS2_FPHASE=0,
            i_CLKI=clk100.i,
            i_CLKFB=ClockSignal("mac_tx"),
            i_RST=0,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=0,
            i_PHASESTEP=0,
            i_PHASELOADREG=0,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=ClockSignal("mac_tx"),
            o_CLKOS=ClockSignal("mac_txc"),
            o_CLKOS2=ClockSignal("sync"),
            o_LOCK=locked,
        )
        m.submodules.resets = resets = ResetSequencer(domains=("sync", "mac_tx"))
        m.submodules.rx_resets = rx_resets = ResetSequencer(domains=("mac_rx",))
        m.d.comb += [
            ClockSignal("mac_rx").eq(rxc.i),
            resets.request.eq(button.i | ~locked),
            rx_resets.request.eq(button.i | ~locked),
            ResetSignal("sync").eq(resets.sync_rst),
            ResetSignal("mac_tx").eq(resets.mac_tx_rst),
            ResetSignal("mac_rx").eq(rx_resets.mac_rx_rst),
        ]
