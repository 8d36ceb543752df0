"""Whose turn it is among the functions of a card."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.host.guest_functions import Turns


class Three(wiring.Component):
    """Three askers."""

    asks: In(3)
    now: Out(2)

    def elaborate(self, platform):
        m = Module()
        turns = Turns(m, [Signal.cast(self.asks)[n] for n in range(3)], "asker")
        m.d.comb += self.now.eq(turns.now)
        return m


def test_who_asks_has_a_turn_and_keeps_it() -> None:
    """It rests while nobody asks: an idle card with several functions sleeps in simulations."""
    dut = Three()

    async def bench(ctx):
        await ctx.tick().repeat(5)
        assert ctx.get(dut.now) == 0
        for asks, now in ((0b100, 2), (0b111, 2), (0b011, 0), (0b010, 1), (0b110, 1), (0, 1)):
            ctx.set(dut.asks, asks)
            await ctx.tick().repeat(4)
            assert ctx.get(dut.now) == now, (asks, now)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
