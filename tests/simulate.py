"""Running small components in Amaranth's own simulator."""

import gc
import warnings
from collections.abc import Callable

from amaranth.hdl import UnusedElaboratable
from amaranth.sim import Simulator

__all__ = ["simulate"]


def simulate(component, *testbenches: Callable, deadline: int = 10_000, background=()) -> None:
    """Run ``testbenches`` (async functions of the simulator context) to their end.

    ``background`` testbenches need not end. Raises AssertionError when one of them has not ended
    after ``deadline`` cycles.
    """
    warnings.simplefilter("ignore", UnusedElaboratable)
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
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
        for _ in range(deadline):
            await ctx.tick()
        assert all(ended), f"not finished after {deadline} cycles: {ended}"

    simulator.add_testbench(watchdog, background=True)
    simulator.run()
    # Endless benches are closed here, and what they complain of is formatted here: not inside
    # another test's parser, which CPython 3.11 does not survive (SystemError in ast.parse).
    del simulator
    gc.collect()
