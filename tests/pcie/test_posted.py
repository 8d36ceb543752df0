"""PostedWrites against a list of the writes in flight, in Amaranth's simulator."""

import random

import pytest

from hdl.pcie.posted import BITS, IN_FLIGHT, NUMBERS, READ, PostedWrites
from tests.simulate import simulate

PATIENCE = 200


@pytest.mark.parametrize("busy", [0.2, 1])
def test_counts(busy):
    """Writes are done when the block names them, by one pin or both, in either order."""
    dut = PostedWrites(patience=PATIENCE)

    async def bench(ctx):
        rng, inside, number, due, full = random.Random(1), [], 0, [0] * 3, 0
        for cycle in range(3000):
            # For a while nothing is returned, until no more may be taken.
            named = inside[: rng.randint(0, 2) if cycle % 500 > 180 else 0]
            del inside[: len(named)]
            pins = [(one, 1) for one in named] or [(READ, 1)]
            pins = [*pins, (rng.randrange(1 << BITS), 0)][:2]
            rng.shuffle(pins)
            for n, (value, valid) in enumerate(pins):
                ctx.set(getattr(dut, f"seq_num{n}"), value)
                ctx.set(getattr(dut, f"seq_num_vld{n}"), valid)
            take = bool(ctx.get(dut.may_take)) and rng.random() < busy
            ctx.set(dut.taken, take)
            assert ctx.get(dut.in_flight) == len(inside) + len(named) + sum(due)
            assert ctx.get(dut.done) == due.pop(0)
            due.append(len(named))
            inside += [number % NUMBERS] * take
            number += take
            full = max(full, len(inside))
            await ctx.tick()
        assert ctx.get(dut.lost) == 0 and full == IN_FLIGHT

    simulate(dut, bench, deadline=10_000)


def test_dropped():
    """Writes that are never named are given up together; later ones count as before."""
    dut = PostedWrites(patience=PATIENCE)

    async def bench(ctx):
        async def take(count):
            ctx.set(dut.taken, 1)
            for _ in range(count):
                await ctx.tick()
            ctx.set(dut.taken, 0)

        async def name(number):
            ctx.set(dut.seq_num1, number)
            ctx.set(dut.seq_num_vld1, 1)
            await ctx.tick()
            ctx.set(dut.seq_num_vld1, 0)
            await ctx.tick().repeat(3)

        await take(7)
        await ctx.tick().repeat(PATIENCE - 20)
        assert ctx.get(dut.in_flight) == 7 and ctx.get(dut.lost) == 0
        await ctx.tick().repeat(40)
        assert ctx.get(dut.in_flight) == 0 and ctx.get(dut.lost) == 1
        await take(2)
        await name(3)  # one that was given up comes after all: it says nothing of these two
        assert ctx.get(dut.in_flight) == 2
        await name(7)
        assert ctx.get(dut.in_flight) == 1
        await ctx.tick().repeat(PATIENCE // 2)
        await name(8)
        await ctx.tick().repeat(2 * PATIENCE)  # without writes nobody loses patience
        assert ctx.get(dut.in_flight) == 0 and ctx.get(dut.lost) == 1

    simulate(dut, bench)


@pytest.mark.parametrize("given_up", [1, 7, 30, 31])
@pytest.mark.parametrize("taken", [1, 5, 30, 31])
@pytest.mark.parametrize("done", [0, 20, 62])
def test_named_after_all(done, taken, given_up):
    """The block was only slow: numbers of writes that were given up say nothing of those in flight
    then, however many these are, and those of these still do."""
    dut = PostedWrites(patience=PATIENCE)

    async def bench(ctx):
        number = 0

        async def take(count):
            nonlocal number
            first = number
            for _ in range(count):
                ctx.set(dut.taken, 1)
                await ctx.tick()
                number = (number + 1) % NUMBERS
            ctx.set(dut.taken, 0)
            return [(first + n) % NUMBERS for n in range(count)]

        async def name(one):
            ctx.set(dut.seq_num0, one)
            ctx.set(dut.seq_num_vld0, 1)
            await ctx.tick()
            ctx.set(dut.seq_num_vld0, 0)
            await ctx.tick().repeat(3)

        for _ in range(done):
            for one in await take(1):
                await name(one)
        slow = await take(given_up)
        await ctx.tick().repeat(PATIENCE + 10)
        assert ctx.get(dut.in_flight) == 0 and ctx.get(dut.lost) == 1
        inside = await take(taken)
        await ctx.tick().repeat(3)
        for one in slow[-12:]:
            await name(one)
            assert ctx.get(dut.in_flight) == taken
        for n, one in enumerate(inside):
            await name(one)
            assert ctx.get(dut.in_flight) == taken - 1 - n
        assert ctx.get(dut.lost) == 1

    simulate(dut, bench)


def test_bad_patience():
    with pytest.raises(ValueError, match="Patience must be at least 64 cycles, not 1"):
        PostedWrites(patience=1)
