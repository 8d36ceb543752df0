"""Start of a receiver of Intel's E-tile: its settings, then the adaptation to the line.

The steps are those of a public design for this tile (corundum's ``xcvr_ctrl``), in the terms of
UG20056, "PMA Bring Up Flow" and "PMA Receiver Equalization Adaptation Usage Model".
"""

from typing import NamedTuple

from amaranth.hdl import Array, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ADDRESS_BITS", "STEPS", "EtileStart", "Step"]

ADDRESS_BITS = 19


class Step(NamedTuple):
    """An access of a channel's registers: a write of ``value``, or reads of it until the bits of
    ``mask`` have it (``mask`` other than 0)."""

    address: int
    value: int
    mask: int = 0


def _attribute(low: int, high: int, code: int) -> tuple[Step, ...]:
    """Ask the tile for something, and wait until it says that it has been done."""
    asked = (low, high, code, 0x96)
    return (*(Step(0x200 + n, value) for n, value in enumerate(asked)), Step(0x207, 0x80, 0xFF))


STEPS = (
    Step(0x40143, 0x80),  # load the settings that the IP core was generated with
    Step(0x40144, 0x01, 0x01),  # they are loaded
    *_attribute(0xD2, 0x02, 0x01),  # initial adaptation
    *_attribute(0xF6, 0x01, 0x03),  # continuous adaptation
)


class EtileStart(wiring.Component):
    """Does the steps once, when its reset ends; the reset lasts until the PLL has locked.

    Parameters: ``pause``: cycles before the first step.
    Members: ``address``, ``read``, ``write``, ``writedata`` Out, ``readdata``, ``waitrequest`` In:
    a channel's registers, an Avalon memory-mapped interface; ``done`` Out: all steps are done.
    Latency: as long as the tile takes. Errors: a step that is never done leaves ``done`` at 0.
    Reset: from the first step on.
    """

    def __init__(self, *, pause: int = 0xFFFF):
        if pause < 1:
            raise ValueError(f"The pause must be at least 1 cycle, not {pause!r}")
        self._pause = pause
        super().__init__(
            {
                "address": Out(ADDRESS_BITS),
                "read": Out(1),
                "write": Out(1),
                "writedata": Out(8),
                "readdata": In(8),
                "waitrequest": In(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self._pause + 1), init=self._pause)
        step, reads = Signal(range(len(STEPS) + 1)), Signal()
        address, value, mask = (
            Array(Const(one[field], bits) for one in (*STEPS, Step(0, 0)))[step]
            for field, bits in enumerate((ADDRESS_BITS, 8, 8))
        )
        m.d.comb += [
            reads.eq(mask != 0),
            self.done.eq(step == len(STEPS)),
            self.address.eq(address),
            self.writedata.eq(value),
        ]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(~self.done):
            m.d.comb += [self.read.eq(reads), self.write.eq(~reads)]
            with m.If(~self.waitrequest & (~reads | ((self.readdata & mask) == value))):
                m.d.sync += step.eq(step + 1)
        return m
