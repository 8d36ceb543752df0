"""Lines that are being read, against a list."""

import random

from amaranth.sim import Simulator

from hdl.queues.lines import HeldLines


def test_held_from_taken_to_done():
    dut, rng = HeldLines(looks=2), random.Random(5)

    async def bench(ctx):
        held: list[int] = []
        for _ in range(3000):
            looks = [rng.randrange(24), rng.choice(held or [7])]
            for n, look in enumerate(looks):
                ctx.set(getattr(dut, f"look{n}"), look)
            taken = len(held) < HeldLines.READERS and rng.random() < 0.5
            done = bool(held) and rng.random() < 0.48
            line = rng.randrange(24)
            ctx.set(dut.taken, taken)
            ctx.set(dut.line, line)
            ctx.set(dut.done, done)
            await ctx.delay(1e-9)
            for n, look in enumerate(looks):
                assert ctx.get(getattr(dut, f"held{n}")) == (look in held)
            await ctx.tick()
            if done:
                held.pop(0)
            if taken:
                held.append(line)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
