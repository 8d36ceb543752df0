"""Streams of an initiator of DC: an error ends the one that its request is of, and no other."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Streams"]


@dataclass
class Streams:
    """Those of an initiator that have failed. ``most``: when so many have, the initiator fails."""

    most: int
    errored: set[int] = field(default_factory=set)

    def fail(self, stream: int) -> bool:
        """One has failed; whether the initiator does."""
        self.errored.add(stream)
        return self.full

    @property
    def full(self) -> bool:
        """Whether the initiator fails."""
        return len(self.errored) >= self.most
