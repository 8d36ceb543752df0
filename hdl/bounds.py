"""Numbers that somebody gives, on a command line, in a file or in a request.

A comparison with NaN is false, and an infinity is within a range without an end. So each such
number is checked here, where both ends are named.
"""

from __future__ import annotations

import math

__all__ = ["WORD", "finite", "within"]

#: The largest seed and the largest count that a compiled model takes, with room to add.
WORD = 1 << 32


def finite(text: str) -> float:
    """The number that a text is; ValueError for what is none, for NaN and for an infinity."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"Not a number: {text!r}")
    return value


def within(name: str, value: float, low: float, high: float) -> None:
    """ValueError with ``name`` unless ``value`` is ``low`` to ``high``, both included."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low} to {high}, not {value}")
