"""Lines that are being read, and states of receive lines, against lists and sets."""

import random

from amaranth.sim import Simulator

from hdl.ports.jobs import LINE_USES
from hdl.queues.receive.lines import RecvLines, refetch_lines
from hdl.queues.wqe.lines import HeldLines


def test_held_from_taken_to_done():
    dut, rng = HeldLines(looks=2), random.Random(5)

    async def bench(ctx):
        held: list[int] = []
        for _ in range(3000):
            looks = [rng.randrange(24), rng.choice(held or [7])]
            for n, look in enumerate(looks):
                ctx.set(getattr(dut, f"look{n}"), look)
            taken = len(held) < LINE_USES and rng.random() < 0.5
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


def test_states_of_receive_lines():
    """Lines are owned, fetched into, given back and read at random; each is one owner's at a time,
    none that is read is given out, and none is lost."""
    lines = 32
    dut, rng = RecvLines(lines=lines), random.Random(6)
    usable = lines - refetch_lines(lines)
    owned: set[int] = set()
    issued: dict[int, int] = {}  # line -> when
    good: dict[int, bool] = {}
    held: list[int] = []

    async def bench(ctx):
        while ctx.get(dut.clearing):
            await ctx.tick()
        given, ended = 0, 0
        for cycle in range(6000):
            for name in ("own", "issue", "release", "arrived", "line_use.taken", "line_use.done"):
                part = dut
                for step in name.split("."):
                    part = getattr(part, step)
                ctx.set(part, 0)
            pause = 200 < cycle % 1000 < 230  # nothing happens: what is said has to be all true
            ripe = [line for line, began in issued.items() if cycle - began > 8]
            if not pause and cycle % 4 == 0 and ctx.get(dut.spare_valid) and rng.random() < 0.7:
                spare = ctx.get(dut.spare)
                assert spare < usable and spare not in owned and spare not in issued
                assert spare not in held, "it is still read"
                for port in (dut.own, dut.issue):
                    ctx.set(port, 1)
                ctx.set(dut.issue_line, spare)
                owned.add(spare)
                issued[spare] = cycle
                given += 1
            elif not pause and cycle % 4 == 2 and owned and rng.random() < 0.65:
                line = rng.choice(sorted(owned))
                ctx.set(dut.release, 1)
                ctx.set(dut.release_line, line)
                owned.remove(line)
            if not pause and ripe and cycle - ended > 1 and rng.random() < 0.5:
                ended = cycle
                line = rng.choice(ripe)
                good[line] = rng.random() < 0.8
                ctx.set(dut.arrived, 1)
                ctx.set(dut.arrived_line, line)
                ctx.set(dut.arrived_good, good[line])
                del issued[line]
            if held and rng.random() < 0.1:
                ctx.set(dut.line_use.done, 1)
                held.pop(0)
            elif owned and len(held) < LINE_USES and rng.random() < 0.1:
                line = rng.choice(sorted(owned))
                ctx.set(dut.line_use.taken, 1)
                ctx.set(dut.line_use.line, line)
                held.append(line)
            await ctx.tick()
            if cycle % 1000 == 229:
                assert ctx.get(dut.free) == usable - len(owned | set(issued))
                assert ctx.get(dut.quiet) == (not issued)
                for line in range(usable):
                    for port in (dut.asked, dut.wanted, dut.sweep):
                        ctx.set(port, line)
                    ctx.set(dut.ask, 1)
                    await ctx.tick()
                    ctx.set(dut.ask, 0)
                    await ctx.tick()
                    busy = line in issued
                    assert ctx.get(dut.busy) == busy
                    assert ctx.get(dut.swept) == (line in owned and not busy)
                    assert busy or line not in good or ctx.get(dut.good) == good[line]
                    ctx.set(dut.waits, 1)
                    await ctx.tick().repeat(4)
                    assert ctx.get(dut.wanted_done) != busy
                    ctx.set(dut.waits, 0)
                    await ctx.tick()
        assert given > 500

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
