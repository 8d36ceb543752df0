"""How busy each part of the cards is while messages are timed: states, levels, and who waits.

A run that is slower than its line has one part that is hardly ever at rest. In front of that part
streams wait, and behind it they are empty.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.task import Task

from sim.bench.stall import handle_of
from sim.rtl.readable import AGE, TICKS, Probe, load

__all__ = ["Busy"]

#: Cycles from one look at all parts to the next: nothing that returns regularly is in step with it.
STEP = 31


@dataclass
class _Part:
    """One probe of one card, and how often it was seen with which value. ``ready``: of a stream,
    whose values are 0 (empty), 1 (it waits) and 2 (it moves)."""

    card: int
    probe: Probe
    signal: Any
    ready: Any = None
    seen: Counter[int] = field(default_factory=Counter)

    def look(self) -> None:
        value = int(self.signal.value)
        if self.ready is not None and value:
            value += int(self.ready.value)
        self.seen[value] += 1

    def facts(self, looks: int) -> dict[str, Any]:
        """Shares of the time; of a level its mean and its most."""
        probe = self.probe
        name, of = probe.name, {"card": self.card, "part": probe.component}
        if probe.ready:
            empty, waits, moves = (self.seen[value] / looks for value in range(3))
            stream = name.removesuffix("__valid")
            return of | {"stream": stream, "moves": moves, "waits": waits, "empty": empty}
        if probe.states:
            shares = {
                probe.states.get(value, str(value)): count / looks
                for value, count in self.seen.most_common()
            }
            machine = name.removesuffix("_state")
            return of | {"machine": machine, "rest": probe.rest, "states": shares}
        mean = sum(value * count for value, count in self.seen.items()) / looks
        return of | {"level": name, "mean": mean, "most": max(self.seen), "start": probe.init}


class Busy:
    """Looks at all parts of the cards of ``testbench`` every ``STEP`` cycles, from ``begin`` on."""

    def __init__(self, testbench: Any):
        self._testbench, self._looks = testbench, 0
        self._task: Task[None] | None = None
        self._parts = [
            _Part(card, probe, signal, handle_of(top, probe.path, probe.ready))
            for card in range(2)
            for top in [testbench.dut._get(f"nic{card}")]
            for probe in load()
            if probe.name not in (AGE, *TICKS)
            and (signal := handle_of(top, probe.path, probe.signal)) is not None
        ]

    def begin(self) -> None:
        """From here on it counts."""
        self._task = cocotb.start_soon(self._watch())

    def end(self) -> list[dict[str, Any]]:
        """What was seen, part by part."""
        assert self._task is not None
        self._task.cancel()
        return [part.facts(self._looks) for part in self._parts] if self._looks else []

    async def _watch(self) -> None:
        while True:
            await self._testbench.cycles(STEP)
            self._looks += 1
            for part in self._parts:
                part.look()
