"""Who has which sink: each is one READ's at a time, and none is lost."""

import random

import pytest

from hdl.config import NicConfig
from hdl.transport.outstanding.sinks import SinkPool
from tests.simulate import simulate

SIZES = {"width": 64, "qps": 4, "cqs": 2, "mrs": 2, "gids": 1, "read_sinks": 8, "long_sinks": 4}


@pytest.mark.parametrize("max_sge", [4, 32])
def test_sinks_come_back(max_sge):
    """Taken, dropped and given back at random: a free one comes within a few cycles."""
    dut, rng = SinkPool(config=NicConfig(max_sge=max_sge, **SIZES)), random.Random(max_sge)
    pools = {0: (dut.short, 8)} | ({1: (dut.long, 4)} if max_sge > 4 else {})
    owned, most = {long: set() for long in pools}, dict.fromkeys(pools, 0)

    async def bench(ctx):
        while not ctx.get(dut.ready):
            await ctx.tick()
        back, quiet = None, dict.fromkeys(pools, 0)
        for step in range(4000):
            fills = step // 200 % 2
            mine = [(number, long) for long, numbers in owned.items() for number in numbers]
            mine = [one for one in mine if one != back]
            dropped = rng.choice(mine) if mine and rng.random() < 0.05 else None
            if back is None and len(mine) > 1 and rng.random() < (0.05 if fills else 0.3):
                back = rng.choice([one for one in mine if one != dropped])
            for port, one in ((dut.dropped, dropped), (dut.back, back)):
                ctx.set(port.valid, one is not None)
                if one is not None:
                    ctx.set(port.payload, {"number": one[0], "long": one[1]})
            ready = {long: int(rng.random() < (0.5 if fills else 0.05)) for long in pools}
            for long, (port, _) in pools.items():
                ctx.set(port.ready, ready[long])
            await ctx.delay(1e-9)
            for long, (port, count) in pools.items():
                if ctx.get(port.valid):
                    number = ctx.get(port.payload)
                    assert number not in owned[long], "a sink was given out twice"
                    quiet[long] = 0
                    if ready[long]:
                        owned[long].add(number)
                elif len(owned[long]) < count and back is None and dropped is None:
                    quiet[long] += 1
                    assert quiet[long] < 20, "a free sink does not come"
                most[long] = max(most[long], len(owned[long]))
            if dropped:
                owned[dropped[1]].discard(dropped[0])
            if back and ctx.get(dut.back.ready):
                owned[back[1]].discard(back[0])
                back = None
            await ctx.tick()
            if back is None:
                ctx.set(dut.back.valid, 0)
        assert all(most[long] == count for long, (_, count) in pools.items())
        assert max_sge > 4 or not ctx.get(dut.long.valid)

    simulate(dut, bench, deadline=6_000)
