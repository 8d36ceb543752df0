"""What both directions are put through alike (runs inside the simulation)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from tests.memory.bus import Sink


def compare_counts(bench: Any) -> None:
    """What the card has counted is what the model has, unless lines could not be read."""
    if not bench.memory.bad:
        bench.counts.compare({one: bench.count(one) for one in ("key_errors", "hits", "misses")})


def ranges(bench: Any) -> Iterator[tuple[int, int, int]]:
    """Yield keys, addresses and lengths: ranges of any length at either end of large regions and at
    the end of the address space, and some that leave these by a byte."""
    world, rng = bench.world, bench.rng
    for key, _, _ in world.singles(32, 8):
        region = world.model.regions[key >> 8]
        for _ in range(8):
            length = min(world.bytes(), region.length)
            start = world.place(region, length) + rng.choice([-1, 0, 0, 1])
            yield key, start & world.end - 1, length
    for region in world.over_the_end(8):
        for _ in range(12):
            length, some = world.bytes(), rng.getrandbits(30)
            start = world.end - length + rng.choice([-some, -1, 0, 0, 1, some])
            yield region.key, start & world.end - 1, length


async def look_up_again(bench: Any, settle: Callable[[], Awaitable[None]]) -> None:
    """Look pages up, two by two in turn. The first look-up reads an entry of the page list,
    wherever that is; later ones find it until another line has taken its place. First one waits for
    the other; then they come without a pause, so that a line is looked up as it is written."""
    regions = bench.world.singles(48, 8)
    for one, other in zip(regions[::2], regions[1::2], strict=True):
        for key, va, _ in 2 * (one, other):
            bench.send_key(key, va, 8)
            await settle()
        compare_counts(bench)
    for at in range(0, len(regions), 2):
        pair = [(va, 8, key) for key, va, _ in regions[at : at + 2]]
        bench.send_line(at % 16, 4 * pair, 0, 64)
    await settle()
    compare_counts(bench)


async def fill_up(bench: Any, sinks: Sequence[Sink], length: int) -> None:
    """Nobody takes from ``sinks``, while answers go out, until no packet of ``length`` bytes is
    taken any more; then all of it comes."""
    region = bench.world.large[0]
    for sink in sinks:
        sink.stall = 1.0
    for _ in range(600 if length < 1024 else 300):
        bench.send_key(region.key, region.va, length)
    for _ in range(3000):
        await bench.bus.cycle()
    assert len(bench.job.items) > 0
    for sink in sinks:
        sink.stall = 0.0
    await bench.finish()
