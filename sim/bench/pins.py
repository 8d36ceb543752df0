"""Pins of a simulated design that a bench looks at in each cycle: read and driven at little cost.

cocotb makes an object of four-valued logic of each value that is read, and schedules each value
that is driven, be it what is driven already. That takes longer than a room's model takes for a
cycle. Verilator's models know 0 and 1 alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Pin", "number", "reader"]


def number(handle: Any) -> int:
    """Return the value of ``handle``, a vector or one bit, as a number."""
    return int(handle._handle.get_signal_val_binstr(), 2)


def reader(handle: Any) -> Callable[[], int]:
    """Return what returns the ``number`` of ``handle``, for those that look again and again."""
    bits: Callable[[], str] = handle._handle.get_signal_val_binstr
    return lambda: int(bits(), 2)


class Pin:
    """An input, a vector or one bit, ``value`` at first."""

    def __init__(self, handle: Any, value: int):
        self.handle, self.value = handle, value
        handle.value = value

    def drive(self, value: int) -> None:
        """Drive ``value``, unless that is what is driven."""
        if value != self.value:
            self.handle.value = self.value = value
