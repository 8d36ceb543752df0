"""Streams of an initiator of DC: an error ends the one that its request is of, and no other."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Streams"]


@dataclass
class Streams:
    """Those of an initiator that have failed. ``most``: when so many have, the initiator fails;
    ``broken``: it has failed otherwise, as its CQ has overflowed."""

    most: int
    errored: set[int] = field(default_factory=set)
    broken: bool = False

    def fail(self, stream: int, *, broken: bool = False) -> bool:
        """One has failed, or the initiator is ``broken``; whether that fails now."""
        if self.full:
            return False
        if broken:
            self.broken = True
        else:
            self.errored.add(stream)
        return self.full

    @property
    def full(self) -> bool:
        """Whether the initiator fails."""
        return self.broken or len(self.errored) >= self.most

    def forget(self) -> None:
        """The initiator has been reset."""
        self.errored.clear()
        self.broken = False
