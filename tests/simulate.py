"""Running small components in Amaranth's own simulator."""

import gc
import warnings
from collections.abc import Callable
from typing import Any

from amaranth.hdl import UnusedElaboratable
from amaranth.lib import data
from amaranth.sim import Simulator

__all__ = ["Pin", "Prepared", "fields", "simulate"]

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


def fields(view: data.View, bits: int) -> Fields:
    """What ``bits`` say, sampled as ``view.as_value()``: to sample ``view`` itself works out its
    layout in each cycle, whether anything is there or not."""
    return Fields(view.shape().from_bits(bits))


class Pin:
    """An input that a bench drives in each cycle: setting it has the whole design looked at."""

    def __init__(self, ctx: Any, signal: Any):
        self._ctx, self._signal, self._value = ctx, signal, ctx.get(signal)

    def drive(self, value: int) -> None:
        """Set it to ``value``, unless that is what it was set to last."""
        if value != self._value:
            self._ctx.set(self._signal, value)
            self._value = value


class Prepared:
    """A component that is simulated many times.

    It is elaborated and compiled once, and begins anew with each simulation. ``component`` is what
    benches drive.
    """

    def __init__(self, component: Any):
        warnings.simplefilter("ignore", UnusedElaboratable)
        self.component = component
        self._simulator = Simulator(component)
        self._simulator.add_clock(_PERIOD_S)
        self._benches: list[Callable] = []  # of the simulation that runs, in their order
        self._places = 0

    def run(self, *benches: Callable) -> None:
        """Simulate with these testbenches, until none of them is in a critical section."""
        if self._benches:
            self._simulator.reset()
        self._benches = list(benches)
        for place in range(self._places, len(benches)):
            self._simulator.add_testbench(self._at(place), background=True)
        self._places = max(self._places, len(benches))
        gc.disable()  # until the end there is next to no garbage to look for
        try:
            self._simulator.run()
        finally:
            gc.enable()

    def _at(self, place: int) -> Callable:
        """A testbench of all simulations: the one at this place in the list, if there is one."""

        async def run(ctx):
            if place < len(self._benches):
                await self._benches[place](ctx)

        return run


def simulate(
    component: Any, *testbenches: Callable, deadline: int = 10_000, background: Any = ()
) -> None:
    """Run ``testbenches`` (async functions of the simulator context) to their end.

    component: what is simulated, or ``Prepared`` when others simulate it too. ``background``
    testbenches need not end. Raises AssertionError when one of the others has not ended after
    ``deadline`` cycles.
    """
    once = not isinstance(component, Prepared)
    prepared = Prepared(component) if once else component
    ended = [False] * len(testbenches)

    def wrap(index: int, bench: Callable) -> Callable:
        async def run(ctx):
            with ctx.critical():
                await bench(ctx)
            ended[index] = True

        return run

    async def watchdog(ctx):
        await ctx.delay(deadline * _PERIOD_S)
        assert all(ended), f"not finished after {deadline} cycles: {ended}"

    watched = (wrap(index, bench) for index, bench in enumerate(testbenches))
    prepared.run(*background, *watched, watchdog)
    if once:
        # Endless benches are closed here, and what they complain of is formatted here: not inside
        # another test's parser, which CPython 3.11 does not survive (SystemError in ast.parse).
        del prepared
        gc.collect()
