"""The user's terminal while a guest's shell has it."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator

__all__ = ["ESCAPE", "is_there", "raw", "size"]

#: Ends the guest, whatever it does: Ctrl-].
ESCAPE = b"\x1d"


def is_there() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def size() -> tuple[int, int]:
    """Its rows and columns."""
    try:
        found = os.get_terminal_size()
    except OSError:
        return 24, 80
    return found.lines or 24, found.columns or 80


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Let each key go to the guest, Ctrl-C too."""
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
