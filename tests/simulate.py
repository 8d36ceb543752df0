"""Running small components in Amaranth's own simulator."""

import gc
import warnings
from collections.abc import Callable

from amaranth.hdl import UnusedElaboratable
from amaranth.lib import data
from amaranth.sim import Simulator

__all__ = ["Fields", "simulate"]

_PERIOD_S = 1e-6


class Fields:
    """The value of a structure, for a test that reads its fields again and again: Amaranth works
    out the layout anew with each of them."""

    def __init__(self, value: data.Const):
        self._value = value

    def __getattr__(self, name: str):
        found = getattr(self._value, name)
        self.__dict__[name] = Fields(found) if isinstance(found, data.Const) else found
        return self.__dict__[name]


def simulate(component, *testbenches: Callable, deadline: int = 10_000, background=()) -> None:
    """Run ``testbenches`` (async functions of the simulator context) to their end.

    ``background`` testbenches need not end. Raises AssertionError when one of them has not ended
    after ``deadline`` cycles.
    """
    warnings.simplefilter("ignore", UnusedElaboratable)
    simulator = Simulator(component)
    simulator.add_clock(_PERIOD_S)
    for bench in background:
        simulator.add_testbench(bench, background=True)
    ended = [False] * len(testbenches)

    def wrap(index: int, bench: Callable) -> Callable:
        async def run(ctx):
            await bench(ctx)
            ended[index] = True

        return run

    for index, bench in enumerate(testbenches):
        simulator.add_testbench(wrap(index, bench))

    async def watchdog(ctx):
        await ctx.delay(deadline * _PERIOD_S)
        assert all(ended), f"not finished after {deadline} cycles: {ended}"

    simulator.add_testbench(watchdog, background=True)
    gc.disable()  # until the end there is next to no garbage to look for
    try:
        simulator.run()
    finally:
        gc.enable()
    # Endless benches are closed here, and what they complain of is formatted here: not inside
    # another test's parser, which CPython 3.11 does not survive (SystemError in ast.parse).
    del simulator
    gc.collect()
