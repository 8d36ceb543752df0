"""What all objects share: a parent, children that are closed before it, ``with`` and ``close``."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Coroutine
from typing import Any, ClassVar, Self
from weakref import WeakSet

from sim.programs.cards import Card
from sim.programs.pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError

__all__ = ["PyverbsCM", "PyverbsObject", "PyverbsRDMAErrno", "PyverbsRDMAError", "ask", "inc_rkey"]


class PyverbsRDMAErrno(PyverbsRDMAError):
    """An error whose errno is the C library's."""

    def __init__(self, msg: str):
        super().__init__(msg, ctypes.get_errno())


class PyverbsObject:
    """Anything of this package."""

    def __init__(self) -> None:
        self.logger = logging.getLogger(type(self).__name__)

    def set_log_level(self, val: int) -> None:
        """The level of this class's logger."""
        self.logger.setLevel(val)

    def close(self) -> None:
        """Ends the use of the object."""


def show(**fields: object) -> str:
    """Names and values in lines, as objects print themselves."""
    return "".join(f"{name.replace('_', ' '):22}: {value}\n" for name, value in fields.items())


def ask(card: Card, work: Coroutine[Any, Any, Any], failed: str) -> Any:
    """What the driver answers; PyverbsRDMAError with the text and the driver's errno."""
    try:
        return card.do(work)
    except OSError as error:
        raise PyverbsRDMAError(failed, error.errno) from error


class PyverbsCM(PyverbsObject):
    """An object of the device: usable with ``with``, closed once, its children before it."""

    #: Children of lower rank are closed first.
    rank: ClassVar[int] = 9

    def __init__(self) -> None:
        super().__init__()
        self._children: WeakSet[PyverbsCM] = WeakSet()
        self._open = False
        self._process = os.getpid()

    def _opened(self, *parents: PyverbsCM | None) -> None:
        """The object is there, and is closed with any of its parents."""
        self._open = True
        self._parents = parents
        for parent in parents:
            if parent is not None:
                parent._children.add(self)

    def close(self) -> None:
        """Destroys it and all that belongs to it; nothing if that has been done."""
        if not getattr(self, "_open", False) or self._process != os.getpid():
            return
        for child in sorted(self._children, key=lambda one: one.rank):
            child.close()
        self._destroy()
        self._open = False

    def _destroy(self) -> None:
        """Destroys the object itself. PyverbsRDMAError."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # As a program ends, what it asks may be gone.
        with contextlib.suppress(PyverbsError, RuntimeError, AttributeError, TypeError):
            self.close()


def inc_rkey(rkey: int) -> int:
    """The key with another tag: its lowest byte is one more."""
    return rkey & ~0xFF | (rkey + 1) & 0xFF
