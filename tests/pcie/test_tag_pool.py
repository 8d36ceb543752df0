"""TagPool against a list of what has become of each tag, in Amaranth's simulator."""

import random

import pytest

from hdl.pcie.tag_pool import PLAIN_TAGS, TagPool
from tests.simulate import simulate

QUARANTINE = 600


class Owner:
    """Takes tags and says what becomes of them, and knows which may be given out again."""

    def __init__(self, ctx, dut, tags, quarantine=QUARANTINE):
        self.ctx, self.dut, self.now, self.quarantine = ctx, dut, 0, quarantine
        self.free, self.used = set(range(tags)), set()
        #: In quarantine: the cycle since when, and whether the block holds the request.
        self.aside: dict[int, tuple[int, bool]] = {}

    async def step(self, *, take=False, plain=False, fate=None, expires=True):
        """One cycle; returns the tag that was given out."""
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.plain, plain)
        ctx.set(dut.o.ready, take)
        ctx.set(dut.expires, expires)
        ctx.set(dut.fate.valid, fate is not None)
        if fate is not None:
            tag, held = fate  # held: None if it is free
            was = tag in self.aside
            parked = held is not None
            now = {"parked": parked, "held": bool(held), "whole": 0}
            ctx.set(dut.fate.payload, {"tag": tag, "now": now, "was": was})
            self.used.discard(tag)
            self.aside.pop(tag, None)
            if parked:
                self.aside[tag] = (self.now, bool(held))
            else:
                self.free.add(tag)
        _, _, valid, tag = await ctx.tick().sample(dut.o.valid, dut.o.payload)
        self.now += 1
        if not (take and valid):
            return None
        if tag in self.aside:  # it has come out by itself
            since, held = self.aside.pop(tag)
            assert self.now - since >= self.quarantine and (expires or not held), tag
        else:
            assert tag in self.free, tag
        assert not (plain and tag >= PLAIN_TAGS)
        self.free.discard(tag)
        self.used.add(tag)
        return tag


@pytest.mark.parametrize("tags", [4, 64, 256])
def test_no_tag_too_early(tags):
    """A tag is given out again when it is free, or when its quarantine has lasted; never while the
    block holds its request and gives up none."""
    quarantine = max(8 * tags, QUARANTINE)
    dut = TagPool(tags=tags, quarantine=quarantine)

    async def bench(ctx):
        rng, owner = random.Random(tags), Owner(ctx, dut, tags, quarantine)
        given = 0
        for cycle in range(9000):
            expires = cycle > 6000
            fate = None
            looked = rng.choice([*owner.aside]) if owner.aside and rng.random() < 0.3 else None
            # A fate is decided in the cycle in which the table is looked at.
            ctx.set(dut.busy, looked is not None)
            ctx.set(dut.busy_tag, looked or 0)
            ctx.set(dut.tag, looked or 0)
            await ctx.delay(1e-8)
            if looked is not None and not ctx.get(dut.state.parked):
                del owner.aside[looked]  # its time was over
                owner.free.add(looked)
            elif looked is not None and rng.random() < 0.3:
                fate = (looked, rng.choice([None, False]))
            elif looked is None and owner.used and rng.random() < 0.5:
                fate = (rng.choice([*owner.used]), rng.choice([None, None, None, False, True]))
            plain, take = rng.random() < 0.3, rng.random() < 0.4
            got = await owner.step(take=take, plain=plain, fate=fate, expires=expires)
            given += got is not None
        assert given > 300

    simulate(dut, bench, deadline=20_000)


@pytest.mark.parametrize("tags", [8, 64])
def test_none_left(tags):
    """``none`` says that each tag that may be used is in quarantine, and the counts agree."""
    dut = TagPool(tags=tags, quarantine=QUARANTINE)

    async def bench(ctx):
        owner = Owner(ctx, dut, tags)
        for _ in range(tags + 5):
            await owner.step()
        taken = []
        while len(taken) < tags:
            got = await owner.step(take=True)
            taken += [] if got is None else [got]
        # Tags that everybody may use are the last ones to be given out.
        assert [tag >= PLAIN_TAGS for tag in taken] == sorted(
            (tag >= PLAIN_TAGS for tag in taken), reverse=True
        )
        assert not ctx.get(dut.o.valid) and not ctx.get(dut.none)
        for tag in sorted(taken):
            await owner.step(fate=(tag, True), expires=False)
            await owner.step(expires=False)
            await owner.step(expires=False)
            await owner.step(expires=False)
            plain, every = tag >= min(tags, PLAIN_TAGS) - 1, tag == tags - 1
            assert ctx.get(dut.none) == every
            ctx.set(dut.plain, 1)
            await ctx.delay(1e-8)
            assert ctx.get(dut.none) == plain
        assert ctx.get(dut.entered) == tags and ctx.get(dut.left) == 0
        for _ in range(3 * QUARANTINE):
            assert await owner.step(take=True, expires=False) is None
        assert ctx.get(dut.left) == 0
        got = set()
        for _ in range(2 * tags + 20):
            got.add(await owner.step(take=True))
        assert got - {None} == set(range(tags))
        assert ctx.get(dut.left) == tags and not ctx.get(dut.none)

    simulate(dut, bench, deadline=20_000)


def test_bad_parameters():
    with pytest.raises(ValueError, match="power of two from 2 to 256, not 12"):
        TagPool(tags=12)
    with pytest.raises(ValueError, match="at least 8 cycles a tag, not 100"):
        TagPool(tags=64, quarantine=100)
