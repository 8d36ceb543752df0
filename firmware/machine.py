"""What the firmware takes from the machine that it runs on."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """``clock``: the time, ns from any beginning, never back. ``random``: so many random bits."""

    clock: Callable[[], int] = time.monotonic_ns
    random: Callable[[int], int] = secrets.randbits
