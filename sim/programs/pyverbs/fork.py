"""Fork support: memory of a child is its own, and the card never sees it, so none is needed."""

from __future__ import annotations

from sim.programs.pyverbs.enums import ibv_fork_status

__all__ = ["fork_init", "is_fork_initialized"]


def fork_init() -> None:
    """Nothing to do."""


def is_fork_initialized() -> int:
    """IBV_FORK_UNNEEDED."""
    return ibv_fork_status.IBV_FORK_UNNEEDED
