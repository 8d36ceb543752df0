"""BIND_MW in the owner of the regions' rows, against a model: rights, bounds, states, keys."""

import random

import pytest

from hdl.ports.rows import MrType
from tests.context.test_region_keys import MRS, NOTHING, Owned, ask, card, firmware
from tests.simulate import simulate

USER = "requester"
LOCAL, WRITE, READ, ATOMIC = 1, 2, 4, 8
REGION, WINDOW = 3, 5
FUNCTION, PD, QP = 2, 3, 77
VA, LENGTH, START = 0x7F00_0000_1FFF, 0x12345, 0x2_0000_0FFF
ROW = {
    "type": MrType.PAGES.value,
    "function": FUNCTION,
    "pd": PD,
    "tag": 9,
    "access": LOCAL | READ,
    "va": VA,
    "length": LENGTH,
    "block": 0x1234_5678_9ABC,
    "start": START,
    "page_size": 1,
    "bind": 1,
}
KINDS = {1: (MrType.WINDOW_1.value, MrType.BOUND_1.value)}
KINDS |= {2: (MrType.WINDOW_2.value, MrType.BOUND_2.value)}


def request(**changes):
    asked = {
        "register": 0,
        "bind": 1,
        "function": FUNCTION,
        "pd": PD,
        "qp": QP,
        "key": WINDOW << 8 | 0x21,
        "lkey": REGION << 8 | 9,
        "access": READ | WRITE,
        "va": VA + 1,
        "length": LENGTH - 2,
        "zero_based": 0,
    }
    return asked | changes


def window(kind, bound=0):
    """The row of a window before the request."""
    row = {"type": KINDS[kind][bound], "function": FUNCTION, "pd": PD, "tag": 7}
    return row | ({"access": READ, "va": 5, "length": 6, "qp": QP} if bound else {})


def bound(kind, asked):
    """The row of a window after the request."""
    row = NOTHING | {
        "type": KINDS[kind][asked["length"] != 0],
        "function": FUNCTION,
        "pd": PD,
        "tag": asked["key"] & 0xFF,
    }
    if asked["length"]:
        row |= {
            "access": asked["access"],
            "va": 0 if asked["zero_based"] else asked["va"],
            "length": asked["length"],
            "block": ROW["block"],
            "start": START + asked["va"] - VA,
            "page_size": 1,
            "parent": card(FUNCTION, REGION),
            "qp": asked["qp"],
        }
    return row


def outcomes(cases):
    """What becomes of each (window row, region row, request): the answer and the window's row."""
    dut, found = Owned(), []

    async def bench(ctx):
        while not ctx.get(dut.table.ready):
            await ctx.tick()
        for row, region, asked in cases:
            await firmware(ctx, dut, card(FUNCTION, WINDOW), row)
            await firmware(ctx, dut, card(FUNCTION, REGION), region)
            before = await firmware(ctx, dut, card(FUNCTION, WINDOW))
            answer = await ask(ctx, dut, USER, asked)
            after = await firmware(ctx, dut, card(FUNCTION, WINDOW))
            kept = await firmware(ctx, dut, card(FUNCTION, REGION))
            assert kept == NOTHING | region, "a region does not change"
            found.append((answer, after, before))

    simulate(dut, bench, deadline=60_000)
    return found


@pytest.mark.parametrize("kind", [1, 2])
def test_what_may_be_bound(kind):
    asked = [
        request(),
        request(zero_based=1),
        request(va=VA, length=LENGTH),
        request(va=VA, length=1),
        request(va=VA + LENGTH - 1, length=1),
        request(access=0),
        request(access=READ | WRITE | ATOMIC),
        request(qp=0x3FFF, key=WINDOW << 8 | 7),
    ]
    for one, (answer, row, _) in zip(
        asked, outcomes([(window(kind), ROW, one) for one in asked]), strict=True
    ):
        assert answer and row == bound(kind, one), one


def test_a_window_of_type_1_is_bound_again_and_unbound():
    asked = [request(), request(length=0, lkey=0), request(length=0, access=0, lkey=0xFFFF_FFFF)]
    rows = [window(1, 1), window(1, 1), window(1)]
    cases = list(zip(rows, [ROW] * 3, asked, strict=True))
    for one, (answer, row, _) in zip(asked, outcomes(cases), strict=True):
        assert answer and row == bound(1, one)


REFUSED_REQUESTS = [
    {"va": VA - 1},
    {"va": VA - 1, "length": 1},
    {"va": VA + LENGTH, "length": 1},
    {"va": VA + 2, "length": LENGTH - 1},
    {"va": VA, "length": LENGTH + 1},
    {"length": (1 << 64) - 1},
    {"va": (1 << 64) - 1, "length": 2},
    {"va": 0, "length": VA + 2},
    {"lkey": REGION << 8 | 8},
    {"lkey": (REGION + MRS) << 8 | 9},
    {"lkey": 1 << 31 | REGION << 8 | 9},
    {"lkey": WINDOW << 8 | 9},
    {"lkey": (REGION + 1) << 8 | 9},
    {"key": (WINDOW + MRS) << 8 | 0x21},
    {"key": REGION << 8 | 9},
    {"pd": PD + 1},
    {"function": 3 - FUNCTION},
]
REFUSED_REGIONS = [
    {"bind": 0},
    {"pd": PD + 1},
    {"function": 3 - FUNCTION},
    {"access": READ},
    *({"type": kind.value} for kind in MrType if kind is not MrType.PAGES),
]


@pytest.mark.parametrize("kind", [1, 2])
def test_what_may_not_be_bound(kind):
    """Everything else, by one byte at either end, by wrap, by any key, domain and function."""
    cases = [(window(kind), ROW, request(**change)) for change in REFUSED_REQUESTS]
    cases += [(window(kind), ROW | change, request()) for change in REFUSED_REGIONS]
    cases += [
        (ROW | {"type": other.value}, ROW, request()) for other in MrType if not other.value & 8
    ]
    cases += [(window(2, 1), ROW, request()), (window(2), ROW, request(length=0))]
    cases += [(window(2, 1), ROW, request(length=0))]
    for case, (answer, after, before) in zip(cases, outcomes(cases), strict=True):
        assert not answer and after == before, case


def test_invalidation():
    """Of a window of type 2, by the QP that has bound it; type 1 knows no invalidation."""
    free = {"bind": 0, "key": WINDOW << 8 | 7}
    cases = [
        (window(2, 1), request(**free), True),
        (window(2), request(**free), True),
        (window(2), request(**free, qp=QP + 1), True),
        (window(2, 1), request(**free, qp=QP + 1), False),
        (window(2, 1), request(**free, qp=QP ^ 1 << 13), False),
        (window(2, 1), request(bind=0, key=WINDOW << 8 | 6), False),
        (window(2, 1), request(**free, pd=PD + 1), False),
        (window(2, 1), request(**free, function=3 - FUNCTION), False),
        (window(1, 1), request(**free), False),
        (window(1), request(**free), False),
    ]
    found = outcomes([(row, ROW, asked) for row, asked, _ in cases])
    for (row, asked, good), (answer, after, before) in zip(cases, found, strict=True):
        assert answer == good, (row, asked)
        expected = before | ({"type": MrType.WINDOW_2.value} if good else {})
        assert after == expected


def test_no_registration_makes_a_window_a_region():
    asked = request(bind=0, register=1, mrn=WINDOW)
    cases = [(window(kind, bound), ROW, asked) for kind in (1, 2) for bound in (0, 1)]
    assert all(not answer and after == before for answer, after, before in outcomes(cases))


@pytest.mark.parametrize("seed", range(2))
def test_random_bounds(seed):
    """Windows of any size about the ends of regions of any size, also at the ends of all."""
    rng, cases, good = random.Random(seed), [], []
    for _ in range(120):
        length = rng.choice([1, 2, 4096, rng.getrandbits(46) + 1])
        last = (1 << 64) - length
        va = rng.choice([0, last, rng.randrange(last + 1)])
        size = rng.choice([1, length, length + 1, max(length - 1, 1), rng.getrandbits(64) or 1])
        first = rng.choice([va, va + length - size, va - 1, va + 1, va + length, va + length - 1])
        first &= (1 << 64) - 1
        cases.append(
            (window(2), ROW | {"va": va, "length": length}, request(va=first, length=size))
        )
        good.append(va <= first and first + size <= va + length)
    found = outcomes(cases)
    assert [answer for answer, *_ in found] == good
    assert 20 < sum(good) < 100
    for (_, region, asked), (answer, after, _) in zip(cases, found, strict=True):
        if answer:
            assert after["start"] == START + asked["va"] - region["va"] & (1 << 48) - 1
