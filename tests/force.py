"""Breaks one signal of one component after elaboration, whatever the component's source says.

A ``Force`` names a component by its class, a signal of it, and what becomes of that signal. While
it is applied every instance of the class elaborates with it, for Verilog and for Amaranth's
simulator alike. A refactoring that keeps the names leaves it alone.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from amaranth.hdl import Cat, Const, Fragment, Instance, Mux, Shape, Signal, Value
from amaranth.hdl._ast import Assign, Part, SignalSet, Slice, SwitchValue
from amaranth.hdl._xfrm import StatementTransformer, ValueTransformer

__all__ = [
    "Force",
    "ForceError",
    "applied",
    "chosen",
    "delayed",
    "inverted",
    "like",
    "masked",
    "of",
    "plus",
    "rotated",
    "stuck",
]


class ForceError(LookupError):
    """A component or signal that a force names is not there."""


#: What becomes of a signal: its true value and the place, to what others see.
Change = Callable[[Value, "Place"], Any]


@dataclass(frozen=True)
class Force:
    """``part``: ``"hdl.common.skid:Skid"``. ``signal``: a member's path, or a signal by the name
    that it has in the component's ``elaborate`` and its other methods, or by that of the signal
    itself, with fields: ``"o.payload.psn"``, ``"held"``. ``change``: one of the functions below.
    ``having``: instances without a member of that name are left alone.

    A signal which the component drives is changed for everyone; one that it only reads, as an
    input or a submodule's output, is changed for this component.
    """

    part: str
    signal: str
    change: Change
    having: str = ""

    def find(self) -> type:
        """Return the class; raises ForceError when it is not there."""
        module, _, name = self.part.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ForceError(f"There is no component {self.part}: {error}") from None

    def install(self) -> None:
        """Apply it for good: what a copied source file says at its end."""
        _patch(self)

    def __call__(self, component: Any, fragment: Fragment, names: dict[str, Any]) -> None:
        """Change ``fragment``, which ``component`` was elaborated to; ``names``: its variables."""
        if self.having and not hasattr(component, self.having):
            return
        place = Place(component, fragment, names, self.part)
        place.change(place.signal(self.signal), self.change)


# What can become of a signal.


def stuck(value: int) -> Change:
    """It always has this value."""
    return lambda true, place: Const(value, len(true))


def inverted(mask: int = -1) -> Change:
    """The bits of ``mask`` are inverted."""
    return lambda true, place: true ^ Const(mask, Shape(len(true)))


def plus(amount: int) -> Change:
    """It is too high by ``amount``; it wraps."""
    return lambda true, place: (true + amount)[: len(true)]


def masked(mask: int) -> Change:
    """Its bits outside of ``mask`` are 0."""
    return lambda true, place: true & Const(mask, len(true))


def rotated(bits: int) -> Change:
    """It is rotated by that many bits too many."""
    return lambda true, place: true.rotate_left(bits)


def like(path: str) -> Change:
    """It is the same as another signal of the component."""
    return lambda true, place: place.signal(path)[: len(true)]


def of(value: Callable[[Value, Callable[[str], Value]], Any]) -> Change:
    """It is a function of its true value and of others; these are found by their paths."""
    return lambda true, place: value(true, place.signal)


def delayed() -> Change:
    """It is seen a cycle late."""

    def change(true: Value, place: Place) -> Value:
        late = Signal(len(true), name="force_late")
        place.add("sync", late.eq(true))
        return late

    return change


def chosen(change: Change, number: int) -> Change:
    """It is what ``change`` makes of it in a simulation with ``+fault=number``, else what it is.

    So one model has several faults. It needs ``tests/faults/fault_choice.sv`` among its sources.
    """

    def switched(true: Value, place: Place) -> Value:
        choice = Signal(8, name="fault_choice")
        place.include(Instance("fault_choice", o_number=choice))
        return Mux(choice == number, change(true, place), true)

    return switched


class Place:
    """A component that is being changed: finds its signals, and puts others in their place."""

    def __init__(
        self, component: Any, fragment: Fragment, names: dict[str, Any], part: str
    ) -> None:
        self._component, self._fragment = component, fragment
        self._names, self._part = names, part

    def signal(self, path: str) -> Value:
        """Return the signal of that name, or the field of it; raises ForceError without one."""
        first, *fields = path.split(".")
        try:
            if hasattr(self._component, first):
                value = getattr(self._component, first)
            elif first in self._names:
                value = self._names[first]
            else:
                value = next(one for one in self._signals() if one.name == first)
            for field in fields:
                value = value[int(field)] if field.isdigit() else getattr(value, field)
            return Value.cast(value)
        except (StopIteration, AttributeError, IndexError, KeyError, TypeError):
            known = ", ".join(sorted(self._names))
            raise ForceError(f"{self._part} has no signal {path}; it has {known}") from None

    def add(self, domain: str, *statements: Assign) -> None:
        """Add statements to the component."""
        self._fragment.add_statements(domain, *statements)

    def include(self, part: Fragment) -> None:
        """Put a submodule into the component."""
        self._fragment.add_subfragment(part)

    def change(self, value: Value, change: Change) -> None:
        """Replace ``value`` (a signal or a part of one) by what ``change`` makes of it."""
        signal, start, stop = _whole(value)
        # An assertion gives a set in which no signal can be looked for.
        driven = any(signal in SignalSet(one._lhs_signals()) for one in self._statements())
        if driven:
            other = Signal.like(signal, name=f"{signal.name}_true")
            swap = _Swap(signal, other, driver=True)
            true, seen = other, signal
        else:
            other = Signal(len(signal), name=f"{signal.name}_forced")
            swap = _Swap(signal, other, driver=False)
            true, seen = signal, other
        statements = self._fragment.statements
        for domain, inside in statements.items():
            statements[domain] = swap.on_statements(inside)
        bits = Value.cast(true)
        changed = Value.cast(change(bits[start:stop], self))
        whole = Cat(bits[:start], changed[: stop - start], bits[stop:])
        self.add("comb", seen.eq(whole))

    def _signals(self) -> Iterator[Signal]:
        """All signals that the component's own statements assign."""
        for one in self._statements():
            yield from one._lhs_signals()

    def _statements(self) -> Iterable[Any]:
        return (one for inside in self._fragment.statements.values() for one in inside)


def _whole(value: Value) -> tuple[Signal, int, int]:
    """Return the signal which ``value`` is a part of, and from which bit to which."""
    if isinstance(value, Signal):
        return value, 0, len(value)
    if isinstance(value, Slice):
        signal, start, _ = _whole(value.value)
        return signal, start + value.start, start + value.stop
    if hasattr(value, "operator") and value.operator in ("u", "s"):
        return _whole(value.operands[0])
    raise ForceError(f"{value!r} is no part of one signal")


class _Swap(ValueTransformer, StatementTransformer):
    """Puts one signal in another's place where that is driven, or where it is read."""

    def __init__(self, old: Signal, new: Signal, *, driver: bool) -> None:
        self._old, self._new, self._driver = old, new, driver
        self._left = False  # inside of what is assigned

    def on_Signal(self, value: Signal) -> Signal:
        return self._new if value is self._old and self._left == self._driver else value

    def _read(self, value: Value) -> Value:
        """A value that is read, though it may stand inside of one that is assigned."""
        left, self._left = self._left, False
        try:
            return self.on_value(value)
        finally:
            self._left = left

    def on_Part(self, value: Part) -> Value:
        inside = self.on_value(value.value)
        return Part(inside, self._read(value.offset), value.width, value.stride)

    def on_SwitchValue(self, value: SwitchValue) -> Value:
        cases = [(patterns, self.on_value(one)) for patterns, one in value.cases]
        return SwitchValue(self._read(value.test), cases)

    def on_Assign(self, stmt: Assign) -> Assign:
        self._left = True
        lhs = self.on_value(stmt.lhs)
        self._left = False
        return Assign(lhs, self.on_value(stmt.rhs))


@contextmanager
def applied(*forces: Force) -> Iterator[None]:
    """Inside, the components that ``forces`` name elaborate with them."""
    with ExitStack() as stack:
        for force in forces:
            stack.callback(_patch(force))
        yield


def _patch(force: Force) -> Callable[[], None]:
    """Apply one force; returns what takes it back."""
    part: Any = force.find()
    original = part.elaborate

    @functools.wraps(original)
    def elaborate(self: Any, platform: Any) -> Fragment:
        names: dict[str, Any] = {}

        before = sys.getprofile()

        def note(frame: FrameType, event: str, what: Any) -> None:
            if event == "return" and frame.f_locals.get("self") is self:
                names.update(frame.f_locals)
            if before is not None:  # of a force that was applied later to the same component
                before(frame, event, what)

        sys.setprofile(note)
        try:
            elaborated = original(self, platform)
        finally:
            sys.setprofile(before)
        fragment = Fragment.get(elaborated, platform)
        force(self, fragment, names)
        return fragment

    part.elaborate = elaborate
    return lambda: setattr(part, "elaborate", original)
