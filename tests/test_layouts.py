"""The model of layouts against the formulas of docs/extensions.md, written down once more: the
model counts through all bytes, these divide."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from tests.layouts import Layout, Piece


def at(layout: Layout, offset: int) -> tuple[int, int, int]:
    """Entry, address and contiguous bytes of an offset of fewer than all bytes."""
    before = [0, *accumulate(piece.count for piece in layout.pieces)]  # P(i), and R
    row, rest = divmod(offset, before[-1])
    (entry,) = (n for n in range(len(layout.pieces)) if before[n] <= rest < before[n + 1])
    a, c, s = (getattr(layout.pieces[entry], name) for name in ("addr", "count", "skip"))
    return entry, a + row * (c + s) + rest - before[entry], before[entry + 1] - rest


@pytest.mark.parametrize("seed", range(40))
def test_model_is_the_formulas(seed: int) -> None:
    """Lists and rows, with entries of no bytes; each offset, and ranges of any length."""
    rng = random.Random(seed)
    pieces = [
        Piece(rng.randrange(1 << 40), rng.choice((0, 1, 8, 50)), 0, rng.choice((0, 3, 200)))
        for _ in range(rng.randint(1, 12))
    ]
    layout = Layout([*pieces, Piece(5, 1)], rng.choice((1, 1, 2, 9)))
    total = layout.total
    assert layout.addresses(0, total) == [at(layout, offset)[1] for offset in range(total)]
    for _ in range(50):
        offset = place = rng.randrange(total)
        end = offset + rng.randint(1, total - offset)
        for run in layout.runs(offset, end - offset):
            entry, addr, contiguous = at(layout, place)
            assert (run.entry, run.addr) == (entry, addr)
            assert run.length == min(contiguous, end - place)
            place += run.length
        assert place == end
