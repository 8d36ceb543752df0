"""The words of the gateware's large memories, read and written without simulated time.

Inside a simulation that was built with ``memories=True`` (``sim.bench.testbench.build`` does so).
The words are those of ``rocinante_ram``, which only a clock's edge looks at: what is written here
is what the next edge finds.
"""

from __future__ import annotations

from ctypes import CDLL, POINTER, byref, c_char_p, c_uint8, c_uint32, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Memory", "scopes", "words"]


@cache
def _library() -> CDLL:
    program = CDLL(None)
    program.memory_words.restype = c_void_p
    program.memory_words.argtypes = [c_char_p, POINTER(c_uint32), POINTER(c_uint32)]
    program.memory_scope.restype = c_char_p
    program.memory_scope.argtypes = [c_uint32]
    return program


@cache
def scopes() -> tuple[str, ...]:
    """Where memories are, such as ``testbench.nic0.tables.qp_context.qp_tx.rows.copy1``."""
    found: list[str] = []
    while (name := _library().memory_scope(len(found))) is not None:
        found.append(name.decode())
    return tuple(found)


def words(scope: str) -> NDArray[np.uint8]:
    """The memory in ``scope``: an array of rows, each its bytes, lowest first; KeyError if none."""
    size, rows = c_uint32(), c_uint32()
    address = _library().memory_words(scope.encode(), byref(size), byref(rows))
    if not address:
        raise KeyError(f"No memory {scope}: smaller than 1024 bits, or built without memories")
    area = (c_uint8 * (rows.value * size.value)).from_address(address)
    return np.ctypeslib.as_array(area).reshape(rows.value, size.value)


def _copies(place: str) -> list[NDArray[np.uint8]]:
    """The memories whose scopes are ``place`` and a name behind it, in their order."""
    return [words(scope) for scope in sorted(scopes()) if scope.rpartition(".")[0] == place]


class Memory:
    """One RAM of the gateware (``hdl.common.ram.Ram``) with all its copies, or several alike.

    places: scopes of the RAMs, without ``copy<i>``. A row is a number, as in the gateware.
    KeyError when one of them is not there.
    """

    def __init__(self, *places: str):
        copies: list[NDArray[np.uint8]] = []
        above: list[NDArray[np.uint8]] = []  # of the rows that a deep RAM keeps apart
        for place in places:
            copies += (found := _copies(place) or _copies(f"{place}.below"))
            above += _copies(f"{place}.above")
            if not found:
                raise KeyError(f"No memory {place}")
        self._below, self._bytes = copies[0].shape
        self.rows = self._below + (len(above[0]) if above else 0)
        self._copies, self._above = (
            [array.reshape(-1).data for array in arrays] for arrays in (copies, above)
        )

    def read(self, index: int) -> int:
        """A row, of the first copy."""
        copies, place = self._place(index)
        return int.from_bytes(copies[0][place], "little")

    def write(self, index: int, row: int) -> None:
        """Replace a row in all copies; the next clock edge sees it."""
        copies, place = self._place(index)
        data = row.to_bytes(self._bytes, "little")
        for copy in copies:
            copy[place] = data

    def _place(self, index: int) -> tuple[list[memoryview], slice]:
        if not 0 <= index < self.rows:
            raise IndexError(f"Row {index} of {self.rows}")
        copies = self._copies
        if index >= self._below:
            copies, index = self._above, index - self._below
        return copies, slice(index * self._bytes, (index + 1) * self._bytes)
