"""GMII's bytes on the pins of RGMII. Spec: RGMII 2.0 (Hewlett-Packard, 2002), 3.0 to 3.4.

Each pin carries two bits per cycle of 125 MHz: the low nibble and the high one, and beside them
xx_EN and xx_EN ^ xx_ER. The registers that do this at the pins are ``io.DDRBuffer``s, for which
each vendor's platform knows a cell.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Gmii", "Rgmii", "RgmiiPins"]


class Gmii(wiring.Signature):
    """One direction of GMII, seen from who sends: a byte, xx_EN (or RX_DV) and xx_ER."""

    def __init__(self):
        super().__init__({"data": Out(8), "en": Out(1), "er": Out(1)})


@dataclass(frozen=True)
class RgmiiPins:
    """Ports of ``amaranth.lib.io``: TXC, TX_CTL, TXD[3:0], RX_CTL, RXD[3:0]. RXC is a clock."""

    tx_clk: io.PortLike
    tx_ctl: io.PortLike
    tx_data: io.PortLike
    rx_ctl: io.PortLike
    rx_data: io.PortLike


class Rgmii(wiring.Component):
    """Joins both directions of GMII to the pins.

    Parameters: ``pins``; ``tx_domain``, 125 MHz; ``txc_domain``: the same clock 90 degrees (2 ns)
    later, from the same PLL, for TXC: the PHY samples in the middle of each bit (RGMII-ID), and no
    delay cell has to be set; ``rx_domain``: RXC, which the PHY or the board delays likewise.
    Members: ``tx`` In, of ``tx_domain``; ``rx`` Out, of ``rx_domain``.
    Latency: 1 cycle and the cells' own, each way. Throughput: a byte per cycle. Errors: none.
    Reset: nothing is sent and nothing received.
    """

    def __init__(
        self,
        *,
        pins: RgmiiPins,
        tx_domain: str = "mac_tx",
        txc_domain: str = "mac_txc",
        rx_domain: str = "mac_rx",
    ):
        for name, width in (("tx_data", 4), ("rx_data", 4), ("tx_ctl", 1), ("rx_ctl", 1)):
            found = len(getattr(pins, name))
            if found != width:
                raise ValueError(f"{name} must have {width} pins, not {found!r}")
        self._pins, self._tx, self._txc, self._rx = pins, tx_domain, txc_domain, rx_domain
        super().__init__({"tx": In(Gmii()), "rx": Out(Gmii())})

    def elaborate(self, platform):
        m = Module()
        pins = self._pins
        m.submodules.tx_clk = tx_clk = io.DDRBuffer("o", pins.tx_clk, o_domain=self._txc)
        m.submodules.tx_ctl = tx_ctl = io.DDRBuffer("o", pins.tx_ctl, o_domain=self._tx)
        m.submodules.tx_data = tx_data = io.DDRBuffer("o", pins.tx_data, o_domain=self._tx)
        m.submodules.rx_ctl = rx_ctl = io.DDRBuffer("i", pins.rx_ctl, i_domain=self._rx)
        m.submodules.rx_data = rx_data = io.DDRBuffer("i", pins.rx_data, i_domain=self._rx)
        low, high, enable, other = Signal(4), Signal(4), Signal(), Signal()
        m.d[self._tx] += [
            Cat(low, high).eq(self.tx.data),
            enable.eq(self.tx.en),
            other.eq(self.tx.en ^ self.tx.er),
        ]
        m.d.comb += [
            tx_clk.o[0].eq(1),
            tx_clk.o[1].eq(0),
            tx_ctl.o[0].eq(enable),
            tx_ctl.o[1].eq(other),
            tx_data.o[0].eq(low),
            tx_data.o[1].eq(high),
        ]
        m.d[self._rx] += [
            self.rx.data.eq(Cat(rx_data.i[0], rx_data.i[1])),
            self.rx.en.eq(rx_ctl.i[0]),
            self.rx.er.eq(rx_ctl.i[0] ^ rx_ctl.i[1]),
        ]
        return m
