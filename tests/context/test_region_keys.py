"""The owner of the regions' keys against a model, with the firmware's accesses in between."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from hdl.config import NicConfig
from hdl.context.region_keys import RegionKeys
from hdl.context.table import Table
from hdl.ports.keys import KEYS, LAYOUT
from hdl.ports.regions import KEY_USERS, LAYOUT_REQUEST
from hdl.ports.rows import MrRow, MrType
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=8, cqs=4, mrs=32, gids=2, functions=2)
#: With indirect keys.
MKEYS = replace(CONFIG, mkeys=True)
MRS = CONFIG.guest.mrs
#: What an invalidation makes of what has a key that can be invalidated.
FREED = {
    MrType.FREE: MrType.FREE,
    MrType.FAST: MrType.FREE,
    MrType.WINDOW_2: MrType.WINDOW_2,
    MrType.BOUND_2: MrType.WINDOW_2,
    MrType.MKEY_FREE: MrType.MKEY_FREE,
    MrType.MKEY: MrType.MKEY_FREE,
}
_INDIRECT = (MrType.MKEY_FREE.value, MrType.MKEY.value)
FIELDS = [name for name, _ in MrRow.as_shape()]
#: A row of zeros.
NOTHING = dict.fromkeys(FIELDS, 0) | {"flush": {"visible": 0, "persistent": 0}}


class Owned(Elaboratable):
    """The regions' table behind its owner."""

    def __init__(self, config=CONFIG):
        self.keys = RegionKeys(config=config)
        self.table = Table(row=MrRow, depth=CONFIG.mrs, index_width=16, owned=False)

    def elaborate(self, platform):
        m = Module()
        m.submodules.keys, m.submodules.table = self.keys, self.table
        wiring.connect(m, self.keys.table, self.table.program)
        return m


async def firmware(ctx, dut, index, row=None):
    """Write ``row``, or read the row."""
    program = dut.keys.program
    ctx.set(program.index, index)
    if row is not None:
        ctx.set(program.row, row)
    port = program.read if row is None else program.write
    ctx.set(port, 1)
    *_, found = await ctx.tick().sample(program.read_row).until(program.done)
    ctx.set(port, 0)
    row = {name: getattr(found, name) for name in FIELDS}
    flush = {name: getattr(row["flush"], name) for name in ("visible", "persistent")}
    return row | {"type": row["type"].value, "flush": flush}


async def ask(ctx, dut, user, request):
    """A request to its answer."""
    port = getattr(dut.keys.ports, user)
    ctx.set(port.req.payload, request)
    ctx.set(port.req.valid, 1)
    await ctx.tick().until(port.req.ready)
    ctx.set(port.req.valid, 0)
    *_, good = await ctx.tick().sample(port.rsp.payload).until(port.rsp.valid)
    return good


def card(function, number):
    """The row of a function's region."""
    return (function - 1) * MRS + number


def expected(rows, request):
    """Whether the request is done, and the row that it leaves."""
    number, tag = request["key"] >> 8, request["key"] & 0xFF
    if number >= MRS:
        return False, None
    row = rows[card(request["function"], number)]
    if any(row[name] != request[name] for name in ("function", "pd")):
        return False, None
    if request["register"] and request["bind"]:
        return expected_layout(row, request)
    if request["register"]:
        if row["type"] != MrType.FREE.value or request["mrn"] != number:
            return False, None
        rights = {name: request[name] for name in ("access", "flush")}
        return True, row | {"type": MrType.FAST.value, "tag": tag} | rights
    kind = MrType(row["type"])
    if kind not in FREED or row["tag"] != tag:
        return False, None
    if kind is MrType.BOUND_2 and row["qp"] != request["qp"]:
        return False, None
    if kind.value in _INDIRECT and request["access"] & 1 and not row["bind"]:
        return False, None  # a peer asks
    return True, row | {"type": FREED[kind].value}


def expected_layout(row, request):
    """The same of a layout."""
    asked, had = LAYOUT_REQUEST.from_bits(request["va"]), LAYOUT.from_bits(row["block"])
    right = row["type"] in _INDIRECT and row["tag"] == request["key"] & 0xFF
    right &= request["mrn"] == request["key"] >> 8 and asked.layout.entries <= had.most
    right &= not (asked.check_free and row["type"] == MrType.MKEY.value)
    if not right or asked.look:
        return right, row
    new = {name: asked.layout[name] for name in LAYOUT.members} | {"most": had.most}
    layout = {"block": LAYOUT.const(new).as_value().value, "length": request["length"]}
    rights = {"access": request["access"], "flush": {"visible": 0, "persistent": 0}}
    return True, row | {"type": MrType.MKEY.value} | layout | rights


def some_row(rng, function, config):
    """A row of a region, whatever its kind."""
    row = {name: rng.getrandbits(1) for name in FIELDS} | {"va": rng.getrandbits(64)}
    kinds = [kind for kind in MrType if KEYS[kind.value].feature in config.features]
    if config.mkeys:
        kinds += [MrType.MKEY_FREE] * 4 + [MrType.MKEY] * 6
    kind = rng.choice((*kinds, *[MrType.FREE] * 6, *[MrType.FAST] * 3)).value
    row |= {"type": kind, "function": function, "pd": rng.choice((3, 3, 4)), "tag": 5}
    if kind in _INDIRECT:
        row["block"] = LAYOUT.const({"most": rng.randint(1, 32)}).as_value().value
    return row | {"flush": some_flush(rng)}


def some_flush(rng):
    """Rights of FLUSH."""
    return {name: rng.getrandbits(1) for name in ("visible", "persistent")}


def some_request(rng, rows, config):
    """One that is likely to be right."""
    function, number = rng.choice((1, 2)), rng.randrange(MRS)
    row = rows[card(function, number)]
    wrong = rng.choice((*[0] * 8, MRS, 1 << 23))
    request = {
        "register": rng.randrange(2),
        "bind": 0,
        "function": rng.choice((*[function] * 6, 3 - function)),
        "pd": row["pd"],
        "key": (number + wrong) << 8 | row["tag"],
        "mrn": rng.choice((*[number] * 6, number + wrong, number ^ 1)),
        "access": rng.getrandbits(4),
        "flush": some_flush(rng),
        "qp": rng.getrandbits(1),
    }
    if request["register"]:
        request["key"] ^= rng.getrandbits(8)
    if config.mkeys and row["type"] in _INDIRECT and rng.randrange(3):
        layout = {"row_bytes": rng.getrandbits(32), "entries": rng.randint(1, 36)}
        asked = {"layout": layout | {"generation": rng.getrandbits(14)}}
        asked |= {name: int(rng.random() < 0.2) for name in ("look", "check_free")}
        word = LAYOUT_REQUEST.const(asked).as_value().value
        of = {"register": 1, "bind": 1, "va": word, "length": rng.getrandbits(47)}
        request |= of | {"key": (number + wrong) << 8 | row["tag"]}
    spoilt = rng.choice(("pd", "key", *[None] * 6))
    return request | ({spoilt: request[spoilt] ^ 1} if spoilt else {})


@pytest.mark.parametrize("config", [CONFIG, MKEYS])
@pytest.mark.parametrize("seed", range(3))
def test_every_change_is_as_the_rows_allow(seed, config):
    rng, dut = random.Random(seed), Owned(config)

    async def bench(ctx):
        while not ctx.get(dut.table.ready):
            await ctx.tick()
        rows = {}
        for function in (1, 2):
            for number in range(MRS):
                rows[card(function, number)] = some_row(rng, function, config)
        for index, row in rows.items():
            await firmware(ctx, dut, index, row)
        done = {0: 0, 1: 0}
        for _ in range(300):
            request = some_request(rng, rows, config)
            good, row = expected(rows, request)
            assert await ask(ctx, dut, rng.choice(KEY_USERS), request) == good, request
            if good:
                rows[card(request["function"], request["key"] >> 8)] = row
                done[request["register"]] += 1
            index = rng.choice(list(rows))
            assert await firmware(ctx, dut, index) == rows[index]
            if rng.random() < 0.2:
                rows[index] = some_row(rng, 1 + index // MRS, config)
                await firmware(ctx, dut, index, rows[index])
        for index, row in rows.items():
            assert await firmware(ctx, dut, index) == row
        assert min(done.values()) > 20, "the requests must be likely to be right"

    simulate(dut, bench, deadline=30_000)


@pytest.mark.parametrize("gap", range(1, 13))
def test_a_region_that_is_taken_away_meanwhile_stays_away(gap):
    """The firmware clears the row in any cycle of a change: afterwards it is clear."""
    dut, free = Owned(), {"type": MrType.FREE, "function": 1, "pd": 3}
    answers, cleared = [], []

    async def asks(ctx):
        while not ctx.get(dut.table.ready):
            await ctx.tick()
        await firmware(ctx, dut, 2, free)
        for user, key in zip(KEY_USERS, (0x207, 0x208), strict=True):
            request = {"register": 1, "function": 1, "pd": 3, "key": key, "mrn": 2}
            answers.append(await ask(ctx, dut, user, request))

    async def clears(ctx):
        port = dut.keys.ports.commit.req
        await ctx.tick().until(port.valid)
        await ctx.tick().repeat(gap)
        await firmware(ctx, dut, 2, {})
        cleared.append((await firmware(ctx, dut, 2))["type"])

    simulate(dut, asks, clears, deadline=2_000)
    assert answers in ([1, 0], [0, 0]) and cleared == [0]
