"""The sinks of READs against a model: what is written is read, in the store where it lies."""

import random

import pytest

from hdl.config import NicConfig
from hdl.memory.sinks import ReadSinks
from hdl.ports.jobs import SHORT_SINK_SGES, LineStore
from tests.simulate import simulate

SIZES = {"width": 64, "qps": 4, "cqs": 2, "mrs": 2, "gids": 1, "read_sinks": 8, "long_sinks": 4}


@pytest.mark.parametrize("max_sge", [4, 32])
def test_each_store_is_read(max_sge):
    """Short and long sinks are written and read at once; the WQEs' lines are read through."""
    config = NicConfig(max_sge=max_sge, **SIZES)
    dut, rng = ReadSinks(config=config), random.Random(max_sge)
    slots = {LineStore.SINK: (8, SHORT_SINK_SGES), LineStore.LONG_SINK: (4, 32)}
    stores = [LineStore.SINK] + [LineStore.LONG_SINK] * (max_sge > SHORT_SINK_SGES)
    kept = {}
    seen = set()

    async def bench(ctx):
        wanted = None
        for cycle in range(1500):
            ctx.set(dut.i.valid, 0)
            if rng.random() < 0.5:
                store = rng.choice(stores)
                line, slot = (rng.randrange(count) for count in slots[store])
                sink = {"number": line, "long": store == LineStore.LONG_SINK}
                data = rng.getrandbits(128)
                ctx.set(dut.i, {"valid": 1, "sink": sink, "slot": slot, "data": data})
            else:
                store = None
            ctx.set(dut.reader.slot_enable, 0)
            asked = None
            if kept and rng.random() < 0.6:
                asked = rng.choice([*kept, (LineStore.WQE, rng.randrange(64), rng.randrange(32))])
                read = {"store": asked[0], "line": asked[1], "slot": asked[2]}
                ctx.set(dut.reader.slot, read)
                ctx.set(dut.reader.slot_enable, 1)
            await ctx.delay(1e-9)
            assert ctx.get(dut.lines.slot_enable) == (
                asked is not None and asked[0] == LineStore.WQE
            )
            if wanted is not None:
                assert ctx.get(dut.reader.slot_data) == wanted, cycle
            if asked:
                seen.add(asked[0])
                # A row that is written as it is read is read as it was.
                wanted = kept[asked] if asked in kept else rng.getrandbits(128)
            await ctx.tick()
            if asked and asked[0] == LineStore.WQE:
                ctx.set(dut.lines.slot_data, wanted)
            if store is not None:
                kept[store, line, slot] = data

    simulate(dut, bench, deadline=2_000)
    assert seen == {LineStore.WQE, *stores}
