"""Layouts of indirect keys in plain Python: which bytes an offset stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Layout", "Piece", "Run"]


@dataclass(frozen=True)
class Piece:
    """An entry: ``count`` bytes at ``addr`` under ``key``, and ``skip`` bytes to its next row."""

    addr: int
    count: int
    key: int = 0
    skip: int = 0


@dataclass(frozen=True)
class Run:
    """Contiguous bytes of one entry."""

    entry: int
    addr: int
    length: int


@dataclass(frozen=True)
class Layout:
    """Rows of ``pieces``, ``repeat`` times; a list is one row."""

    pieces: Sequence[Piece]
    repeat: int = 1

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return sum(piece.count for piece in self.pieces)

    @property
    def total(self) -> int:
        """Bytes of the layout."""
        return self.row * self.repeat

    def _bytes(self) -> Iterator[tuple[int, int]]:
        """Entry and address of each byte, from offset 0 on."""
        for nth in range(self.repeat):
            for entry, piece in enumerate(self.pieces):
                first = piece.addr + nth * (piece.count + piece.skip)
                yield from ((entry, first + at) for at in range(piece.count))

    def addresses(self, offset: int, length: int) -> list[int]:
        """The address of each byte of a range, which lies in the layout."""
        assert offset + length <= self.total
        return [addr for _, addr in self._bytes()][offset : offset + length]

    def runs(self, offset: int, length: int) -> list[Run]:
        """The range as contiguous bytes of one entry in one row each."""
        found: list[Run] = []
        at = 0
        for nth in range(self.repeat):
            for entry, piece in enumerate(self.pieces):
                low, high = max(at, offset), min(at + piece.count, offset + length)
                if low < high:
                    first = piece.addr + nth * (piece.count + piece.skip)
                    found.append(Run(entry, first + low - at, high - low))
                at += piece.count
        return found
