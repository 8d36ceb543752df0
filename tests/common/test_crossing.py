"""Crossings between clocks of unrelated frequencies, their resets and their constraints."""

import random
from itertools import pairwise

import pytest
from amaranth.hdl import ClockDomain, Elaboratable, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from hdl.common.constraints import ClockPath, PathKind, clock_paths, sdc, xdc
from hdl.common.crossing import (
    AsyncStreamFifo,
    CountCrossing,
    LevelCrossing,
    PulseCrossing,
    ResetSequencer,
)
from tests.common.clock_lint import crossings

#: MHz of the two sides.
RATIOS = [(322.265625, 250), (250, 322.265625), (125, 50), (50, 125), (250, 250.1), (400, 33)]
CLOCKS = {"a": 322_265_625, "b": 250_000_000}


def run(top, ratio, *benches, deadline_us=60, background=()):
    """Both clocks begin at some time of their own; every bench must end."""
    simulator = Simulator(top)
    for name, mhz, phase in (("a", ratio[0], 0.3e-9), ("b", ratio[1], 1.1e-9)):
        simulator.add_clock(1e-6 / mhz, phase=phase, domain=name)
    ended = []

    def wrap(bench):
        async def until_end(ctx):
            await bench(ctx)
            ended.append(bench)

        return until_end

    for bench in benches:
        simulator.add_testbench(wrap(bench))
    for bench in background:
        simulator.add_testbench(bench, background=True)

    async def watchdog(ctx):
        await ctx.delay(deadline_us * 1e-6)
        assert len(ended) == len(benches), "not finished in time"

    simulator.add_testbench(watchdog, background=True)
    simulator.run()


def fifo(depth=16):
    return AsyncStreamFifo(shape=16, depth=depth, i_domain="a", o_domain="b")


async def send(ctx, dut, values, rng, idle):
    for value in values:
        while rng.random() < idle:
            await ctx.tick("a")
        ctx.set(dut.i.payload, value)
        ctx.set(dut.i.valid, 1)
        await ctx.tick("a").until(dut.i.ready)
        ctx.set(dut.i.valid, 0)


async def receive(ctx, dut, values, rng, stall):
    for value in values:
        while rng.random() < stall:
            await ctx.tick("b")
        ctx.set(dut.o.ready, 1)
        *_, payload = await ctx.tick("b").sample(dut.o.payload).until(dut.o.valid)
        assert payload == value
        ctx.set(dut.o.ready, 0)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("idle,stall", [(0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3)])
def test_order_is_kept(ratio, idle, stall):
    dut, values = fifo(), range(400)

    async def source(ctx):
        await send(ctx, dut, values, random.Random(2), idle)

    async def sink(ctx):
        await receive(ctx, dut, values, random.Random(3), stall)

    run(dut, ratio, source, sink)


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_beat_in_each_cycle_of_the_slower_clock(ratio):
    dut, count, times = fifo(), 300, []

    async def source(ctx):
        ctx.set(dut.i.valid, 1)
        for _ in range(count):
            await ctx.tick("a").until(dut.i.ready)
        ctx.set(dut.i.valid, 0)

    async def sink(ctx):
        ctx.set(dut.o.ready, 1)
        cycle = 0
        while len(times) < count:
            *_, valid = await ctx.tick("b").sample(dut.o.valid)
            cycle += 1
            times.extend([cycle] * valid)

    run(dut, ratio, source, sink)
    slower = ratio[1] / min(ratio)
    assert times[-1] - times[0] <= (count - 1) * slower + 2


@pytest.mark.parametrize("ratio", RATIOS)
def test_latency(ratio):
    """Two to three edges of the other clock, after the one that has taken the beat."""
    dut, taken, edges = fifo(), [], []

    async def source(ctx):
        await ctx.tick("a").repeat(5)
        ctx.set(dut.i.valid, 1)
        await ctx.tick("a").until(dut.i.ready)
        ctx.set(dut.i.valid, 0)
        taken.append(True)

    async def sink(ctx):
        valid = 0
        while not valid:
            *_, valid = await ctx.tick("b").sample(dut.o.valid)
            edges.extend([1] * bool(taken))

    run(dut, ratio, source, sink)
    assert 2 <= len(edges) - 1 <= 3  # sampled at the edge behind the one that brings it


class _WithReset(Elaboratable):
    """A FIFO whose clocks are reset by a sequencer."""

    def __init__(self):
        self.dut, self.request = fifo(), Signal(init=1)
        self.sequencer = ResetSequencer(domains=("a", "b"))

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut, m.submodules.sequencer = self.dut, self.sequencer
        for name in ("a", "b"):
            setattr(m.domains, name, ClockDomain(name))
            m.d.comb += ResetSignal(name).eq(getattr(self.sequencer, f"{name}_rst"))
        m.d.comb += self.sequencer.request.eq(self.request)
        return m


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_reset_empties_the_fifo(ratio):
    """Also one that comes when the FIFO is full and its pointers are anywhere."""
    top, rng = _WithReset(), random.Random(4)
    dut, sequencer = top.dut, top.sequencer

    async def bench(ctx):
        for turn in range(12):
            ctx.set(top.request, 1)
            await ctx.delay(1e-9 * rng.randint(1, 30))
            assert ctx.get(sequencer.a_rst) and ctx.get(sequencer.b_rst)
            ctx.set(top.request, 0)
            while ctx.get(sequencer.b_rst):
                await ctx.tick("b")
            await ctx.tick("b").repeat(8)
            assert not ctx.get(dut.o.valid)
            some = [turn * 50 + n for n in range(rng.randint(1, 16))]
            await send(ctx, dut, some, rng, 0.2)
            await receive(ctx, dut, some[: rng.randint(0, len(some))], rng, 0.2)

    run(top, ratio, bench)


@pytest.mark.parametrize("ratio", RATIOS)
def test_resets_end_in_turn(ratio):
    top, hold = ResetSequencer(domains=("a", "b"), hold=8), 8
    cycles = {"a": 0, "b": 0}
    ends = {}

    def counter(name):
        async def count(ctx):
            reset = getattr(top, f"{name}_rst")
            while True:
                await ctx.tick(name)
                cycles[name] += 1
                if name not in ends and not ctx.get(reset):
                    ends[name] = dict(cycles)

        return count

    async def bench(ctx):
        ctx.set(top.request, 1)
        await ctx.delay(20e-9)
        cycles.update(a=0, b=0)
        ends.clear()
        ctx.set(top.request, 0)
        while len(ends) < 2:
            await ctx.delay(5e-9)

    run(top, ratio, bench, background=(counter("a"), counter("b")))
    assert min(ends["a"].values()) >= hold and min(ends["b"].values()) >= hold
    assert ends["b"]["b"] - ends["a"]["b"] >= hold - 1


@pytest.mark.parametrize("ratio", RATIOS)
def test_levels_and_pulses(ratio):
    level = LevelCrossing(width=1, i_domain="a", o_domain="b", init=1)
    pulse = PulseCrossing(i_domain="a", o_domain="b")
    top, seen, given = Module(), [], 20
    top.submodules.level, top.submodules.pulse = level, pulse
    wait = int(4 * max(1, ratio[0] / ratio[1])) + 1  # four cycles of the other clock

    async def source(ctx):
        ctx.set(level.i, 1)
        for n in range(given):
            ctx.set(pulse.i, 1)
            ctx.set(level.i, n & 1)
            await ctx.tick("a")
            ctx.set(pulse.i, 0)
            await ctx.tick("a").repeat(wait)
            assert ctx.get(level.o) == n & 1

    async def sink(ctx):
        while True:
            *_, one = await ctx.tick("b").sample(pulse.o)
            seen.append(one)

    run(top, ratio, source, background=(sink,))
    assert sum(seen) == given


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_count_never_shows_a_value_that_was_not(ratio):
    dut, rng, given, seen = (
        CountCrossing(width=6, i_domain="a", o_domain="b"),
        random.Random(5),
        [],
        [],
    )

    async def source(ctx):
        for _ in range(300):
            one = rng.random() < 0.7
            ctx.set(dut.i, one)
            given.append(one)
            await ctx.tick("a")
        ctx.set(dut.i, 0)
        await ctx.tick("b").repeat(8)
        assert ctx.get(dut.o) == sum(given) % 64

    async def sink(ctx):
        while True:
            *_, count = await ctx.tick("b").sample(dut.o)
            seen.append((count, sum(given)))

    run(dut, ratio, source, background=(sink,))
    steps = [(after - before) % 64 for (before, _), (after, _) in pairwise(seen)]
    assert all((total - count) % 64 <= 60 for count, total in seen) and sum(steps) <= sum(given)


class _Everything(Elaboratable):
    """Each kind of crossing, below an instance."""

    def __init__(self):
        self.clocks = {name: Signal(name=f"{name}_clock") for name in ("a", "b")}

    def elaborate(self, platform):
        m, inner = Module(), Module()
        inner.submodules.fifo_ab = there = fifo()
        inner.submodules.fifo_ba = back = AsyncStreamFifo(
            shape=16, depth=4, i_domain="b", o_domain="a"
        )
        inner.submodules.level = level = LevelCrossing(width=2, i_domain="a", o_domain="b")
        inner.submodules.pulse = pulse = PulseCrossing(i_domain="b", o_domain="a")
        wiring.connect(inner, there.o, back.i)
        inner.submodules.count = count = CountCrossing(width=4, i_domain="a", o_domain="b")
        inner.d.comb += [level.i.eq(there.i.valid), pulse.i.eq(level.o[0])]
        inner.d.comb += count.i.eq(there.i.ready)
        wiring.connect(inner, back.o, there.i)
        m.submodules.inner = inner
        m.submodules.sequencer = sequencer = ResetSequencer(domains=("a", "b"))
        for name in ("a", "b"):
            setattr(m.domains, name, domain := ClockDomain(name))
            m.d.comb += [
                domain.clk.eq(self.clocks[name]),
                ResetSignal(name).eq(getattr(sequencer, f"{name}_rst")),
            ]
        return m


def test_every_path_between_clocks_is_constrained():
    """The paths that components name are those which the netlist has, and there are no others."""
    named = {
        (path.kind is PathKind.RESET, path.launch * (path.kind is not PathKind.RESET), path.capture)
        for path in clock_paths(_Everything())
    }
    found, design = set(), _Everything()
    for path in crossings(design, inputs=design.clocks):
        capture = path.capture.rstrip("0123456789") if path.reset else path.capture
        found.add((path.reset, "" if path.reset else path.launch, capture))
    # No clock is behind the request of the sequencer.
    runs = {(True, "", f"sequencer.runs_{name}.stage") for name in "ab"}
    assert found == named - runs


def test_xdc():
    text = xdc(clock_paths(_Everything()), CLOCKS)
    there = "*inner/fifo_ab/fifo/produce_w_gry_reg*", "*inner/fifo_ab/fifo/produce_cdc/stage0_reg*"
    ends = "-from [get_cells -hierarchical -filter {NAME =~ %s}] -to [get_cells -hierarchical "
    ends = (ends + "-filter {NAME =~ %s}]") % there
    assert f"set_max_delay -datapath_only {ends} 3.103\n" in text
    assert f"set_bus_skew {ends} 3.103\n" in text
    assert "set_property ASYNC_REG TRUE [get_cells -hierarchical -filter {NAME =~ " in text
    assert text.count("set_bus_skew") == 5 and text.count("set_false_path") == 6
    with pytest.raises(ValueError, match="The frequency of the clock 'b' is needed"):
        xdc(clock_paths(_Everything()), {"a": 1_000_000})


def test_sdc():
    text = sdc(clock_paths(_Everything()), CLOCKS)
    ends = "-from [get_registers {*inner|level|launch*}] "
    ends += "-to [get_registers {*inner|level|synchroniser|stage0*}]"
    assert f"set_net_delay {ends} -max 3.103\n" in text
    assert text.count("set_max_skew") == 5 and text.count("set_false_path") == 6


def test_bad_parameters():
    with pytest.raises(ValueError, match="power of two, at least 4 beats, not 12"):
        fifo(depth=12)
    with pytest.raises(ValueError, match="Domains must differ, not 'a' twice"):
        AsyncStreamFifo(shape=1, i_domain="a", o_domain="a")
    with pytest.raises(ValueError, match="at least 4 cycles, not 2"):
        ResetSequencer(domains=("a",), hold=2)
    with pytest.raises(ValueError, match=r"different names, at least one, not \('a', 'a'\)"):
        ResetSequencer(domains=("a", "a"))
    assert ClockPath(PathKind.BITS, "x", "y", "a", "b").below(("p", "q")).capture == "p.q.y"
