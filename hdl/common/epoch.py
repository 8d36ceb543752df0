"""Divides time into epochs: the only register of the gateware that counts cycles by themselves."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

__all__ = ["EPOCH", "Epoch"]

#: Cycles of an epoch.
EPOCH = 1 << 16


class Epoch(wiring.Component):
    """Tells when an epoch ends: state that is older than one or two epochs may then be dropped.

    Everything in the gateware that depends on time alone uses this component and nothing else. A
    simulation that jumps over idle cycles advances ``age`` by as many, and never jumps over the end
    of an epoch (sim/models/clock_model.cpp finds the register by its name).
    Members: ``ends`` Out, high in the last of each 65536 cycles. Reset: none, the epoch goes on.
    """

    ends: Out(1)

    def elaborate(self, platform):
        m = Module()
        age = Signal(range(EPOCH), reset_less=True)
        m.d.sync += age.eq(age + 1)
        m.d.comb += self.ends.eq(age == EPOCH - 1)
        return m
