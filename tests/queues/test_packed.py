"""Places and flags of packed rings, and how far one reaches, against a plain model of the ring."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.config import NicConfig
from hdl.queues.ring import packed
from hdl.queues.ring.reach import FlagsBatch, Reach
from tests.simulate import simulate

AVAIL, USED, DESC = 1 << 7, 1 << 15, 2


class Facts(wiring.Component):
    """What the functions say of a position, of flags and of an event suppression structure."""

    def __init__(self):
        super().__init__(
            {"position": In(16), "size_log2": In(4), "flags": In(16), "event": In(16)}
            | {"off_wrap": Out(16), "available": Out(1), "used": Out(16), "asked": Out(32)}
            | {"offset": Out(20), "distance": Out(16)}
        )

    def elaborate(self, platform):
        m = Module()
        at = self.position, self.size_log2
        named = packed.event_position(self.event, self.size_log2)
        m.d.comb += [
            self.off_wrap.eq(packed.off_wrap(*at)),
            self.available.eq(packed.available(self.flags, packed.wrap_counter(*at))),
            self.used.eq(packed.used_flags(self.flags[0], *at)),
            self.asked.eq(packed.asked_event(*at)),
            self.offset.eq(packed.flags_offset(*at)),
            self.distance.eq((named - self.position)[:16] & packed.two_laps(self.size_log2)),
        ]
        return m


def wrap(position: int, size: int) -> int:
    return int(position // size % 2 == 0)


def test_places_and_flags():
    dut, rng = Facts(), random.Random(3)

    async def bench(ctx):
        for _ in range(2000):
            log2 = rng.choice([0, 1, 2, 5, 12, 15])
            size, position = 1 << log2, rng.choice([rng.getrandbits(16), 0, 0xFFFF])
            flags = rng.getrandbits(16)
            ahead = rng.randrange(rng.choice([2 * size, min(2 * size, 4)]))
            named = position + ahead
            event = named % size | wrap(named, size) << 15
            for name, value in (
                ("position", position),
                ("size_log2", log2),
                ("flags", flags),
                ("event", event),
            ):
                ctx.set(getattr(dut, name), value)
            await ctx.delay(1e-9)
            place, counter = position % size, wrap(position, size)
            assert ctx.get(dut.off_wrap) == place | counter << 15
            assert ctx.get(dut.asked) == place | counter << 15 | DESC << 16
            there = bool(flags & AVAIL) == bool(counter) != bool(flags & USED)
            assert ctx.get(dut.available) == there
            assert ctx.get(dut.used) == (flags & 1) << 1 | (AVAIL | USED if counter else 0)
            assert ctx.get(dut.offset) == 16 * place + 14
            assert ctx.get(dut.distance) == ahead

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("width", [64, 128, 512])
def test_reach(width, stall):
    """Of a batch the descriptors up to the first that is not available, whatever is behind it."""
    config = NicConfig(width=width, packed=True)
    batch = FlagsBatch(config)
    dut, rng = Reach(config=config), random.Random(width)

    async def bench(ctx):
        for _ in range(120):
            log2 = rng.choice([0, 1, 2, 3, 4, 9])
            size, position = 1 << log2, rng.getrandbits(16)
            is_packed, error = rng.random() < 0.8, rng.random() < 0.1
            counter, limit = wrap(position, size), min(batch.size, size)
            asked = limit - position % limit
            good = AVAIL if counter else USED
            reach = rng.choice([0, asked, rng.randrange(asked + 1)])
            flags = [good | rng.getrandbits(3)] * reach
            if reach < asked:
                flags.append(rng.choice([0, AVAIL | USED, good ^ AVAIL ^ USED]))
            flags += [rng.choice([good, 0]) for _ in range(asked - len(flags))]
            data = b"".join(f.to_bytes(2, "little") + rng.randbytes(14) for f in flags)
            data = data[: 16 * asked - 14] if is_packed else rng.randbytes(2)
            for name, value in (("packed", is_packed), ("position", position), ("size_log2", log2)):
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.look, 1)
            lanes = width // 8
            beats = [data[at : at + lanes] for at in range(0, len(data), lanes)]
            for n, beat in enumerate(beats):
                whole = int.from_bytes(beat + rng.randbytes(lanes - len(beat)), "little")
                kept = sum((whole >> bit & 1) << at for at, bit in enumerate(batch.kept))
                last = n == len(beats) - 1
                while rng.random() < stall:
                    await ctx.tick()
                payload = {"data": kept, "last": last, "error": last and error}
                ctx.set(dut.i.payload, payload)
                ctx.set(dut.i.valid, 1)
                if not is_packed:
                    break
                await ctx.tick().until(dut.i.ready)
                ctx.set(dut.i.valid, 0)
            while rng.random() < stall:
                await ctx.tick()
            ctx.set(dut.o.ready, 1)
            found = (await ctx.tick().sample(dut.o.payload).until(dut.o.valid))[0]
            ctx.set(dut.o.ready, 0)
            ctx.set(dut.i.valid, 0)
            assert found.error == error
            assert found.data == (reach if is_packed else int.from_bytes(data, "little"))

    simulate(dut, bench, deadline=20_000)
