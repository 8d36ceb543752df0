"""The QPs' timers: bounds of each duration, sets that go on, stops, and what is running."""

import random

import pytest

from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.transport.recovery.qp_timers import QpTimers, TimerKind, duration_ticks
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=8, cqs=4, mrs=16, gids=2)
TICK = 16
#: Cycles of two sweeps, and of a first tick.
SWEEPS = 2 * (4 * CONFIG.qps + 4) + TICK


def run(scenario):
    dut, fired = QpTimers(config=CONFIG), []

    async def watch(ctx):
        ctx.set(dut.tick, TICK)
        ctx.set(dut.poke.ready, 1)
        cycle = 0
        while True:
            *_, valid, poke = await ctx.tick().sample(dut.poke.valid, dut.poke.payload)
            cycle += 1
            watch.cycle = cycle
            if valid:
                assert poke.flags == ReceiveFlags.TIMEOUT
                fired.append((cycle, poke.qp))

    async def main(ctx):
        while not ctx.get(dut.ready):
            await ctx.tick()
        await scenario(ctx, dut, lambda: watch.cycle, fired)

    watch.cycle = 0
    simulate(dut, main, deadline=200_000, background=(watch,))


async def start(ctx, port, qp, kind=TimerKind.ANSWER, code=0, idle=0):
    ctx.set(port.payload, {"qp": qp, "kind": kind, "code": code, "idle": idle})
    ctx.set(port.valid, 1)
    while not ctx.get(port.ready):
        await ctx.tick()
    await ctx.tick()
    ctx.set(port.valid, 0)


def late(kind, code):
    """Cycles between which a timer runs out."""
    least = duration_ticks(kind, code) * TICK
    return least, least + (least // 4 if kind is TimerKind.ANSWER else least // 10) + SWEEPS


KINDS = [(TimerKind.ANSWER, code) for code in (1, 2, 5)]
KINDS += [(TimerKind.PAUSE, code) for code in (1, 2, 3, 6)]


@pytest.mark.parametrize("kind,code", KINDS, ids=lambda v: getattr(v, "name", str(v)))
def test_bounds(kind, code):
    """A timer runs out once, neither early nor late, wherever in a tick it begins."""

    async def scenario(ctx, dut, now, fired):
        rng = random.Random(code)
        for qp in (3, 0, 7):
            await ctx.tick().repeat(rng.randrange(1, 200))
            begun = now()
            await start(ctx, dut.set0, qp, kind, code)
            low, high = late(kind, code)
            await ctx.tick().repeat(high + high // 2)
            assert [one for _, one in fired] == [qp]
            took = fired[0][0] - begun
            assert low <= took <= high + 8, (took, low, high)
            fired.clear()

    run(scenario)


def test_all_at_random():
    """Sets, stops and expiries of all QPs at once: each fires once, unless it is stopped."""

    async def scenario(ctx, dut, now, fired):
        rng, due = random.Random(1), {}
        for _ in range(250):
            qp, port = rng.randrange(CONFIG.qps), rng.choice((dut.set0, dut.set1))
            kind, code = rng.choice((TimerKind.ANSWER, TimerKind.PAUSE)), rng.randrange(1, 5)
            if rng.random() < 0.2:
                kind = TimerKind.OFF
            begun = now()
            await start(ctx, port, qp, kind, code)
            due[qp] = None if kind is TimerKind.OFF else (begun, *late(kind, code))
            await ctx.tick().repeat(rng.randrange(1, 300))
            for cycle, one in fired:
                if due.get(one) is None or cycle <= due[one][0] + 4:
                    continue  # it ran out while it was being set
                since, low, high = due.pop(one)
                assert low <= cycle - since <= high + 8
            fired.clear()
            for one, timer in due.items():
                assert timer is None or now() - timer[0] <= timer[2] + 300, one

    run(scenario)


def test_a_departure_starts_no_timer_while_the_qp_pauses():
    """What leaves the card in a pause was handed over before it; the pause keeps its own time."""

    async def scenario(ctx, dut, now, fired):
        begun = now()
        await start(ctx, dut.set1, 2, TimerKind.PAUSE, 2)
        await start(ctx, dut.set2, 2, TimerKind.ANSWER, 0)  # in the cycle behind it
        await ctx.tick().repeat(20)
        await start(ctx, dut.set2, 2, TimerKind.ANSWER, 0)
        low, high = late(TimerKind.PAUSE, 2)
        await ctx.tick().repeat(high + 100)
        ((at, qp),) = fired
        assert qp == 2 and low <= at - begun <= high + 8
        fired.clear()
        begun = now()
        await start(ctx, dut.set2, 2, TimerKind.ANSWER, 1)  # the pause is over
        low, high = late(TimerKind.ANSWER, 1)
        await ctx.tick().repeat(high + 100)
        assert [one for _, one in fired] == [2] and low <= fired[0][0] - begun

    run(scenario)


@pytest.mark.parametrize("idle", [0, 1])
def test_departures_start_what_is_idle(idle):
    """A QP that waits for an answer does so however much it sends; one that has waited for none
    begins with the first departure."""

    async def scenario(ctx, dut, now, fired):
        code = 2
        low, high = late(TimerKind.ANSWER, code)
        begun = now()
        await start(ctx, dut.set1, 5, TimerKind.ANSWER, code, idle=idle)
        await ctx.tick().repeat(low // 2)
        if idle:
            begun = now()
        for _ in range(6):
            await start(ctx, dut.set2, 5, TimerKind.ANSWER, code)
            await ctx.tick().repeat(low // 4)
        await ctx.tick().repeat(high)
        assert [qp for _, qp in fired[:1]] == [5]
        assert low <= fired[0][0] - begun <= high + 8

    run(scenario)


def test_running_shows_the_row():
    async def scenario(ctx, dut, now, fired):
        async def kind(qp):
            ctx.set(dut.running.index, qp)
            ctx.set(dut.running.enable, 1)
            await ctx.tick()
            return TimerKind(ctx.get(dut.running.row.kind))

        assert await kind(2) is TimerKind.OFF
        await start(ctx, dut.set1, 2, TimerKind.PAUSE, 3)
        await ctx.tick().repeat(2)
        assert await kind(2) is TimerKind.PAUSE and await kind(1) is TimerKind.OFF
        await start(ctx, dut.set0, 2, TimerKind.OFF)
        await ctx.tick().repeat(2)
        assert await kind(2) is TimerKind.OFF
        await ctx.tick().repeat(3000)
        assert not fired

    run(scenario)
