"""How far ahead payload is asked for, with a host and a line of which only the speed matters."""

import random
from collections import deque

import pytest

from hdl.config import NicConfig
from hdl.memory.window import WAITING_BYTES, ReadWindow
from tests.simulate import simulate

CONFIG = NicConfig(width=512)
PLACES = CONFIG.gather_bytes // CONFIG.bytes_per_beat
READ = 64  # beats of a read of a page
LINE = 0.78  # beats a cycle


def run(latency, cycles, *, change=None):
    """A host that answers after ``latency(cycle)`` cycles, in order, with a beat a cycle.

    Returns for each cycle how many places were taken, and how many beats waited; and the cycles
    in which the line had to wait."""
    dut, taken, waiting, idle = ReadWindow(config=CONFIG), [], [], []
    rng = random.Random(1)

    async def main(ctx):
        due, level, under_way, spare, beats = deque(), 0, 0, 0.0, 0
        for cycle in range(cycles):
            fits = ctx.get(dut.fits)
            asks = bool(fits and not beats and cycle > 3)
            ctx.set(dut.asked, asks)
            ctx.set(dut.beats, READ - 1)
            ctx.set(dut.level, level)
            ctx.set(dut.dry, not fits and level == 0)
            if asks:
                first = max(cycle + latency(cycle, rng), due[-1] + 1 if due else 0)
                due.extend(range(first, first + READ))
                under_way += READ
            beats = READ - 1 if asks else max(0, beats - 1)
            if due and due[0] <= cycle:
                due.popleft()
                level, under_way = level + 1, under_way - 1
            spare = min(spare + LINE, 1 + LINE)
            freed = spare >= 1 and level > 0
            if spare >= 1:
                idle.append(cycle) if not freed else None
                spare -= 1
            level -= freed
            ctx.set(dut.freed, freed)
            taken.append(level + under_way)
            waiting.append(level)
            assert level + under_way <= PLACES
            await ctx.tick()

    simulate(dut, main, deadline=cycles + 10)
    return taken, waiting, idle


@pytest.mark.parametrize("latency", [30, 125, 600])
def test_little_waits_and_the_line_does_not(latency):
    cycles = 24_000
    taken, waiting, idle = run(lambda cycle, rng: latency, cycles)
    limit = WAITING_BYTES // CONFIG.bytes_per_beat
    late = waiting[-2000:]
    assert max(late) <= limit + 2 * READ, "no more waits than there has to"
    assert max(taken[-2000:]) <= latency + limit + 2 * READ
    assert not [cycle for cycle in idle if cycle > latency + 2 * READ], "and the line never did"


def test_a_slower_host_opens_it_again():
    change = 20_000

    def latency(cycle, rng):
        return 100 if cycle < change else 900

    _, _, idle = run(latency, 30_000)
    late = [cycle for cycle in idle if cycle > change]
    assert 0 < len(late) < 1500, "once, for about the time that is longer now"
    assert max(late) < change + 4000


def test_answers_that_come_unevenly():
    """Up to half a microsecond later than others: the line hardly waits."""
    _, _, idle = run(lambda cycle, rng: 100 + rng.randrange(125), 24_000)
    assert len([cycle for cycle in idle if cycle > 400]) < 60
