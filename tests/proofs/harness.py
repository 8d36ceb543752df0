"""What every proof is made of: the property's description, and streams that may do anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Elaboratable, Module, Signal, Value

from tests.force import Force

__all__ = ["Harness", "Proof", "any_signal", "hold_assumed", "offer", "sequence", "take"]


class Harness(Elaboratable):
    """An elaboratable made of a function that fills a module."""

    def __init__(self, build: Callable[[Module], None]) -> None:
        self._build = build

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self._build(m)
        return m


@dataclass(frozen=True)
class Proof:
    """A property. ``says``: in a sentence. ``build``: puts the real component into a module and
    asserts. ``broken``: a fault of that component with which the proof must fail. ``depth``: cycles
    from the start that are looked at, None: all. ``sweep``: see ``sim.rtl.formal.prove``."""

    name: str
    says: str
    build: Callable[[Module], None]
    broken: Force
    depth: int | None = None
    sweep: bool = False

    @property
    def harness(self) -> Harness:
        """Return a fresh design with the component and its assertions."""
        return Harness(self.build)


def any_signal(m: Module, width: int, name: str) -> Signal:
    """Return a signal that may have any value in any cycle."""
    signal = Signal(width, name=name)
    m.d.comb += signal.eq(AnySeq(width))
    return signal


def _stays(m: Module, port: Any, name: str) -> Value:
    """Return whether what was offered at ``port`` and not taken is still offered, unchanged."""
    waits, before = Signal(name=f"{name}_waits"), Signal.like(Value.cast(port.payload))
    m.d.sync += [waits.eq(port.valid & ~port.ready), before.eq(port.payload)]
    return ~waits | (port.valid & (Value.cast(port.payload) == before))


def hold_assumed(m: Module, port: Any, name: str) -> None:
    """Assume that what is offered at an input is offered until it is taken."""
    m.d.comb += Assume(_stays(m, port, name))


def offer(m: Module, port: Any, name: str = "i") -> Value:
    """Offer anything at the input ``port`` at any time, by the rules; returns when it is taken."""
    m.d.comb += [
        port.valid.eq(any_signal(m, 1, f"{name}_valid")),
        Value.cast(port.payload).eq(
            any_signal(m, len(Value.cast(port.payload)), f"{name}_payload")
        ),
    ]
    hold_assumed(m, port, name)
    return port.valid & port.ready


def take(m: Module, port: Any, name: str = "o") -> Value:
    """Be ready for the output ``port`` at any time, and assert that it keeps to the rules of a
    stream; returns when a beat is taken."""
    m.d.comb += port.ready.eq(any_signal(m, 1, f"{name}_ready"))
    m.d.comb += Assert(_stays(m, port, name))
    return port.valid & port.ready


def sequence(m: Module, taken: Value, width: int, name: str) -> Signal:
    """Return a count of the cycles with ``taken``: the number of the next beat."""
    number = Signal(width, name=name)
    with m.If(taken):
        m.d.sync += number.eq(number + 1)
    return number
