"""What both directions are put through alike (runs inside the simulation)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.memory.bus import Sink


async def look_up_again(bench: Any, settle: Callable[[], Awaitable[None]], lines: int) -> None:
    """Look pages up, two by two in turn, in a cache of ``lines``. The first look-up reads an entry
    of the page list, wherever that is; later ones find it until another line has taken its place.
    """
    regions = bench.world.singles(48, 8)
    for one, other in zip(regions[::2], regions[1::2], strict=True):
        misses, hits = bench.count("misses"), bench.count("hits")
        for key, va, _ in 3 * (one, other):
            bench.send_key(key, va, 8)
            await settle()
        got = (bench.count("misses") - misses, bench.count("hits") - hits)
        assert got == ((6, 0) if (one[2] ^ other[2]) % lines == 0 else (2, 4)), (one, other)


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
