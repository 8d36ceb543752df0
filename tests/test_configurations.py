"""Cards that can be chosen elaborate and pass lint: the ends of each limit, pairs of values, and
those with a name."""

from dataclasses import asdict
from itertools import combinations
from typing import Any

import pytest

from boards.profiles import PROFILES
from hdl.config import LIMITS, SWITCHES, WIDTHS, CardFeature, NicConfig
from sim.rtl.build import BuildError, Rtl, lint

Row = dict[str, Any]

#: What the structure of a card depends on: the values between which it changes.
VALUES: dict[str, tuple[Any, ...]] = {
    "width": WIDTHS,
    "wqes_ahead": (1, 2, 64),
    "packets_ahead": (1, 2, 32),
    "functions": (1, 2, 4),
    "translation_lines": (0, 8, 64),
    "send_lines": (2, 16),
    "recv_lines": (8, 64),
    "read_sinks": (2, 64),
    "long_sinks": (2, 8),
    "outstanding": (4, 64),
    "max_rd_atomic": (1, 16),
    "quantum": (1, 16),
    "max_sge": (1, 32),
    "max_inline": (16, 512),
    "trace_frames": (0, 2),
    "network": (0, 1, 8),
    **{name: (False, True) for name in sorted(SWITCHES)},
}
#: Pairs that NicConfig refuses (tests/test_config.py).
REFUSED = (
    {("packed", True), ("wqes_ahead", 1)},
    {("push", True), ("wqes_ahead", 1)},
    {("two_level", True), ("translation_lines", 0)},
    {("placement", True), ("atomics", False)},
    {("memcpy", True), ("max_sge", 1)},
    {("mkeys", True), ("fast_registration", False)},
    *(
        {(name, True), (needed, False)}
        for name in ("xrc", "dc")
        for needed in ("srq", "atomics", "fast_registration")
    ),
    {("persistence", True), ("placement", False)},
    {("persistence", True), ("atomics", False)},  # as it needs placement
    *({("network", pairs), ("functions", count)} for pairs in (1, 8) for count in (2, 4)),
    *({("network", pairs), ("parity", True)} for pairs in (1, 8)),
)
#: Tables of every card of the array: their sizes change widths, and nothing of the structure.
SMALL = {"qps": 16, "cqs": 8, "mrs": 16, "gids": 4, "groups": 4, "vectors": 4, "queue_size": 16}
SMALL |= {"read_tags": 16, "read_resources": 64, "gather_bytes": 8192, "receive_bytes": 8192}


def refused(pairs: set[tuple[str, Any]]) -> bool:
    """Whether a card with these values is none."""
    return any(one <= pairs for one in REFUSED)


def all_pairs(values: dict[str, tuple[Any, ...]]) -> list[Row]:
    """Return rows in which each two values of two fields meet, but for those that are refused.

    Method: greedy, one row at a time, as in AETG (Cohen, Dalal, Fredman and Patton, 1997), without
    its random candidates. A row begins with the first pair that has not met. Each other field then
    takes the value that meets most others for the first time; the first of equals is taken.
    """
    items = [[(name, value) for value in some] for name, some in values.items()]
    left = {
        frozenset((one, other)): None  # a dictionary keeps their order
        for ones, others in combinations(items, 2)
        for one in ones
        for other in others
        if not refused({one, other})
    }
    rows = []
    while left:
        row = set(next(iter(left)))
        for some in items:
            if row.isdisjoint(some):
                legal = [item for item in some if not refused(row | {item})]
                row.add(max(legal, key=lambda i: sum(frozenset((i, o)) in left for o in row)))
        for pair in combinations(row, 2):
            left.pop(frozenset(pair), None)
        rows.append({name: dict(row)[name] for name in values})
    return rows


ARRAY = all_pairs(VALUES)
LOWEST: Row = {"width": 64, "two_level": False, **{name: one[0] for name, one in LIMITS.items()}}
HIGHEST: Row = {"width": 64, **{name: one[1] for name, one in LIMITS.items()}}
HIGHEST |= {"network": 0}  # it stands beside one function


def check(row: Row) -> None:
    """Elaborate a card, convert it and pass it through lint; a failure names it as TOML, which
    ``./rocinante verilog --config`` takes."""
    try:
        lint(Rtl("hdl.nic:Nic", {"config": NicConfig(**row)}, name="nic"))
    except (BuildError, ValueError) as error:
        toml = "\n".join(f"{name} = {str(value).lower()}" for name, value in row.items())
        raise AssertionError(f"This card does not pass:\n{toml}\n\n{error}") from None


def test_each_two_values_meet() -> None:
    met = {frozenset(pair) for row in ARRAY for pair in combinations(row.items(), 2)}
    for (name, some), (other, more) in combinations(VALUES.items(), 2):
        for one in some:
            for two in more:
                pair = {(name, one), (other, two)}
                assert (pair in met) != refused(pair), pair
    for row in (*ARRAY, LOWEST, HIGHEST):
        NicConfig(**(SMALL | row))


def test_lowest_of_each_limit() -> None:
    check(LOWEST)


@pytest.mark.slow
def test_highest_of_each_limit() -> None:
    check(HIGHEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_profile(name: str) -> None:
    check(asdict(PROFILES[name]))


def test_the_ends_of_the_profiles() -> None:
    """No card is smaller than the smallest, and the last one has all that a card can have."""
    smallest, everything = PROFILES["smallest"], PROFILES["everything"]
    assert smallest.features == {CardFeature.BASE}
    others = {"clock_hz": 250_000_000, "queue_size": 4}
    for name, (low, _, _) in LIMITS.items():
        assert getattr(smallest, name) == others.get(name, low)
    assert everything.features == set(CardFeature) and everything.trace_frames
    assert everything.functions == LIMITS["functions"][1]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=str(number),
            # They take minutes together; of the narrow ones a part is in each run.
            marks=[] if row["width"] == 64 and number % 6 == 0 else pytest.mark.slow,
        )
        for number, row in enumerate(ARRAY)
    ],
)
def test_pairs(row: Row) -> None:
    check(SMALL | row)
