"""A stand-in for the ECPIX-5's card that sends back each frame: small enough to build at once."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.mac.gigabit import GigabitMac
from hdl.mac.rgmii import Gmii

__all__ = ["Echo"]


class Echo(wiring.Component):
    """The members of ``Ecpix5Card``: frames go back, and so do bytes of the UART."""

    def __init__(self):
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "to_phy": Out(Gmii()),
                "from_phy": In(Gmii()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = GigabitMac(width=64, frame_bytes=1200)
        connect(m, mac.o, mac.i)
        connect(m, mac.tx, flipped(self.to_phy))
        connect(m, flipped(self.from_phy), mac.rx)
        m.d.comb += self.tx.eq(self.rx)
        return m
