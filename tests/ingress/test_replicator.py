"""Copies of datagrams to groups, one after the other, among packets that pass."""

from __future__ import annotations

import random

import pytest

from hdl.abi.limits import GROUP_MEMBERS
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.ingress.groups import found_groups
from hdl.ingress.replicator import Replicator
from hdl.ingress.rows import KEPT
from hdl.ports.headers import GroupRow
from tests.simulate import simulate


def groups(config: NicConfig, rng: random.Random) -> list[list[int]]:
    """QP numbers of the members of each row: of no, some and all places."""
    counts = [0, 1, GROUP_MEMBERS, *(rng.randrange(GROUP_MEMBERS) for _ in range(config.groups))]
    return [[rng.randrange(2, 1 << 24) for _ in range(n)] for n in counts[: config.groups]]


def packets(config: NicConfig, rng: random.Random, count: int) -> list[dict]:
    """Rows of packets, some of them to a group in one or several functions."""
    share, layout = config.guest.groups, found_groups(config)
    rows = []
    for number in range(count):
        row = {"psn": number, "length": rng.choice([0, 1, 4096]), "function": 9, "dest_qp": 77}
        row["found"] = {}
        if rng.random() < 0.6:
            some = rng.sample(range(config.functions), rng.randint(1, config.functions))
            row["found"] = {n: rng.randrange(share) for n in some}
            found = [
                {"hit": n in some, "number": row["found"].get(n, rng.randrange(share))}
                for n in range(config.functions)
            ]
            row["dest_qp"] = layout.const(found).as_bits()
        rows.append(row)
    return rows


@pytest.mark.parametrize("stalls", [(0.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.2, 0.0, 0.8)])
@pytest.mark.parametrize("functions", [1, 2, 3])
def test_each_member_gets_a_copy(functions, stalls):
    config, rng = NicConfig(groups=8, functions=functions), random.Random(functions)
    members, sent = groups(config, rng), packets(config, rng, 60)
    dut, share = Replicator(config=config), config.guest.groups
    got: list[tuple[int, int, int]] = []
    words: list[tuple[int, int]] = []  # how many rows had left, and what was said of the payload
    counted = {"copied": 0, "unclaimed": 0}

    async def source(ctx):
        for row in sent:
            while rng.random() < stalls[0]:
                await ctx.tick()
            fields = {name: row[name] for name in ("psn", "length", "function", "dest_qp")}
            kept = KEPT.const(fields | {"multicast": bool(row["found"]), "datagram": 1})
            ctx.set(dut.kept.payload, kept)
            ctx.set(dut.kept.valid, 1)
            await ctx.tick().until(dut.kept.ready)
            ctx.set(dut.kept.valid, 0)
        await ctx.tick().repeat(1000)  # two rows are held, and leave in the end

    async def table(ctx):
        while True:
            *_, asks, index = await ctx.tick().sample(dut.table.enable, dut.table.index)
            if asks:
                places = {f"member{n}": qpn for n, qpn in enumerate(members[index])}
                ctx.set(dut.table.row, GroupRow.const({"valid": 1} | places))

    async def sink(ctx):
        while True:
            ready = rng.random() >= stalls[1]
            ctx.set(dut.o.ready, ready)
            o = dut.o
            *_, valid, row = await ctx.tick().sample(o.valid, o.payload)
            if valid and ready:
                got.append((row.psn, row.function, row.dest_qp))

    async def payload(ctx):
        while True:
            ready = rng.random() >= stalls[2]
            ctx.set(dut.again.ready, ready)
            *_, valid, word = await ctx.tick().sample(dut.again.valid, dut.again.payload)
            if valid and ready:
                words.append(word)

    async def counters(ctx):
        while True:
            *_, copied, unclaimed = await ctx.tick().sample(dut.copied, dut.unclaimed)
            counted["copied"] += copied
            counted["unclaimed"] += unclaimed

    simulate(dut, source, deadline=20_000, background=(table, sink, payload, counters))
    wanted, said, unclaimed = [], [], 0
    for row in sent:
        if not row["found"]:
            wanted.append((row["psn"], 9, 77))
            continue
        copies = [
            (row["psn"], FUNCTION_RDMA + function, qpn)
            for function, group in sorted(row["found"].items())
            for qpn in members[function * share + group]
        ]
        wanted += copies
        unclaimed += not copies
        if row["length"]:
            said += [1] * len(copies) + [0]
    assert got == wanted
    assert words == said
    copied = len(wanted) - sum(not row["found"] for row in sent)
    assert counted == {"copied": copied, "unclaimed": unclaimed} and unclaimed > 0
