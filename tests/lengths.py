"""Lengths of payload for the tests that send packets of all lengths, one behind the other."""

import os

__all__ = ["EVERY", "lengths"]

#: In the environment of a simulation: each length is sent, which is what ``--slow`` asks for.
EVERY = "ROCINANTE_EVERY_LENGTH"
_LONGEST = 4096
#: Beats of payload up to which each length is sent in any case: how full a packet's last beat is
#: depends on its length modulo a beat alone.
_BEATS = 17


def lengths(width: int) -> list[int]:
    """Return payload lengths in bytes for a data path of ``width`` bits."""
    if os.environ.get(EVERY):
        return list(range(_LONGEST + 1))
    short = max(200, _BEATS * width // 8)
    return [*range(short), *range(short, _LONGEST, 41), _LONGEST]
