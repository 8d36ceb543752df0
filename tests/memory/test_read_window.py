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
PIECE = 8  # beats of a host read
LINE = 0.78  # beats a cycle
SLOW = 0.86  # beats a cycle of a host with 110 Gb/s


class InOrder:
    """A host that answers after ``latency(cycle)`` cycles, in order, with a beat a cycle."""

    def __init__(self, latency):
        self.latency, self.rng, self.due = latency, random.Random(1), deque()

    def ask(self, cycle):
        first = max(cycle + self.latency(cycle, self.rng), self.due[-1] + 1 if self.due else 0)
        self.due.extend(range(first, first + READ))

    def beat(self, cycle):
        if self.due and self.due[0] <= cycle:
            self.due.popleft()
            return True
        return False


class InAnyOrder:
    """A host of ``SLOW`` that answers pieces in any order, which the card puts in order again."""

    def __init__(self, latency):
        self.latency, self.rng, self.pieces = latency, random.Random(1), 0
        self.due, self.ready, self.done, self.next = deque(), [], set(), 0
        self.at, self.left, self.spare, self.out = None, 0, 0.0, 0

    def ask(self, cycle):
        for _ in range(READ // PIECE):
            self.due.append((cycle + self.latency(cycle, self.rng), self.pieces))
            self.pieces += 1

    def beat(self, cycle):
        while self.due and self.due[0][0] <= cycle:
            self.ready.append(self.due.popleft()[1])
        self.spare = min(self.spare + SLOW, 1 + SLOW)
        if self.at is None and self.ready:
            self.at, self.left = self.ready.pop(self.rng.randrange(len(self.ready))), PIECE
        if self.at is not None and self.spare >= 1:
            self.spare -= 1
            self.left -= 1
            if not self.left:
                self.done.add(self.at)
                self.at = None
        if not self.out and self.next in self.done:
            self.done.remove(self.next)
            self.next, self.out = self.next + 1, PIECE
        self.out -= (beat := self.out > 0)
        return beat


def run(latency, cycles, *, kind=InOrder, pauses=lambda cycle: False):
    """A host of a kind. In ``pauses`` nothing is asked for.

    Returns for each cycle how many places were taken, and how many beats waited; and the cycles
    in which the line had to wait."""
    dut, taken, waiting, idle = ReadWindow(config=CONFIG), [], [], []
    host = kind(latency)

    async def main(ctx):
        level, under_way, spare, beats = 0, 0, 0.0, 0
        for cycle in range(cycles):
            fits, wants = ctx.get(dut.fits), not pauses(cycle)
            asks = bool(fits and wants and not beats and cycle > 3)
            ctx.set(dut.asked, asks)
            ctx.set(dut.beats, READ - 1)
            ctx.set(dut.level, level)
            ctx.set(dut.dry, wants and not fits and level == 0)
            if asks:
                host.ask(cycle)
                under_way += READ
            beats = READ - 1 if asks else max(0, beats - 1)
            if host.beat(cycle):
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


def test_pauses_do_not_open_it():
    """A QP that goes back asks for nothing for a while, and then for a whole window at once. Its
    pieces wait for each other at the host, and come in any order. No wider window helps there."""
    cycles = 36_000
    taken, _, _ = run(
        lambda cycle, rng: 125, cycles, kind=InAnyOrder, pauses=lambda cycle: cycle % 4000 < 340
    )
    limit = WAITING_BYTES // CONFIG.bytes_per_beat
    assert max(taken[32_000:]) <= 125 + limit + 3 * READ
