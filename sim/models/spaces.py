"""Functions whose guests are other programs: their memory, mapped piece by piece, and interrupts.

A function without a ``Space`` uses the memory of its host. The compiled side is ``spaces.cpp``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from sim.models import native

__all__ = ["PAGE", "READABLE", "WRITABLE", "Guest", "Space", "lend_page"]

#: Pieces are whole pages of so many bytes.
PAGE = 4096
#: What the card may do with a piece.
READABLE, WRITABLE = 1, 2


class Guest(Protocol):
    """Who hears what a function does beside the memory that is mapped for it."""

    def message(self, addr: int, data: int) -> None:
        """The function has written ``data`` to ``addr``, where messages of interrupts go."""

    def fetch(self, addr: int, length: int, done: Callable[[bytes | None], None]) -> None:
        """The function reads memory that is out of reach: call ``done`` with it, None: an error.

        Reads and writes are to be carried out in the order in which they come here.
        """

    def store(self, addr: int, data: bytes) -> None:
        """The function writes memory that is out of reach."""


def lend_page(host: int, addr: int, *, on: bool = True) -> None:
    """Let functions of a host that have no ``Space`` reach a page of this process, or no more.

    Its bus address is the process address ``addr``. If the program unmaps it, the card finds
    another page there. OSError: EEXIST for a page that is lent, ENOENT for one that is not, EINVAL
    for what is no page.
    """
    _check(native.library().space_lend(host, addr, on))


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


class Space:
    """What the function ``function`` of host ``host`` can reach; nothing in the beginning.

    Addresses are those of the function's bus. Accesses elsewhere fail, and are counted.
    """

    def __init__(self, host: int, function: int, guest: Guest):
        self._host, self._function, self._guest = host, function, guest
        native.library().space_own(host, function)

    def map(self, addr: int, size: int, *, file: int | None, offset: int, rights: int) -> None:
        """Let it reach ``size`` bytes from ``addr`` on; rights: ``READABLE``, ``WRITABLE``.

        file: a descriptor of them, from ``offset`` on, which may be closed afterwards; None: the
        guest is asked for them. OSError: EEXIST what is mapped already, EINVAL no whole pages, or
        bytes that the file does not have, and what mmap says.
        """
        number = -1 if file is None else file
        _check(
            native.library().space_map(
                self._host, self._function, addr, size, number, offset, rights
            )
        )

    def unmap(self, addr: int, size: int) -> None:
        """Take away all pieces in a range. OSError: ENOENT for none, EINVAL for a part of one."""
        _check(native.library().space_unmap(self._host, self._function, addr, size))

    @property
    def faults(self) -> tuple[int, int]:
        """Reads that have failed until now, and writes that were dropped."""
        count = native.library().space_faults
        return count(self._host, self._function, 0), count(self._host, self._function, 1)

    def happened(self, event: native.Event) -> None:
        """Tell the guest of an interrupt, a read or a write; in the order of the events."""
        if event.kind == native.INTERRUPT:
            self._guest.message(event.addr, event.value)
        elif event.kind == native.FETCH:
            serial = event.id

            def done(data: bytes | None) -> None:
                native.library().host_answer(self._host, serial, data)

            self._guest.fetch(event.addr, event.value & 0xFFFF_FFFF, done)
        else:
            beat = bytearray(event.value)
            view = (native.c_uint8 * len(beat)).from_buffer(beat)
            native.library().host_store(self._host, view)
            del view
            self._guest.store(event.addr, bytes(beat))
