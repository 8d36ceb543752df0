"""What the benches of both directions have in common (runs inside the simulation)."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Self

from tests.memory.bus import Bus, Lines, Reader, Sink, Source, Table, regions
from tests.memory.cases import FUNCTION, World
from tests.memory.counts import Counts
from tests.memory.model import OK, PAGE

WIDTH = int(os.environ["WIDTH"])
MRS = int(os.environ["MRS"])
LINES = int(os.environ["LINES"])  # 0: without a cache, and packets one by one
LANES = WIDTH // 8


class Direction:
    """One direction of the room, ``PART``, with its world, and the ports that both have.

    idle, stall: shares of the cycles without an offer, and in which nothing is taken. latency: of
    the host's reads, in cycles. deadline: cycles after which the test fails.
    """

    PART = ""

    def __init__(
        self,
        dut: Any,
        *,
        seed: int = 1,
        idle: float = 0.0,
        stall: float = 0.0,
        latency: int = 20,
        deadline: int = 60_000,
    ):
        self.rng = random.Random(seed)
        self.world = World(seed, MRS, two_level=LINES > 0)
        self.memory, self.model = self.world.memory, self.world.model
        self.counts = Counts(self.model, LINES)
        self.dut, self.bus = dut, Bus(dut, deadline)
        self.idle, self.stall = idle, stall
        self.options = {"function": FUNCTION, "latency": latency, "idle": idle, "stall": stall}

    async def start(self) -> Self:
        """Join the ports, reset."""
        name = f"{self.PART}__"
        self.table = Table(self.bus, f"{name}mr", regions(self.model))
        self.lines = Lines(self.bus, f"{name}slot")
        self.job = self.source("job")
        self.ports()
        self.tables = self.reader_of("table_client")
        self.pin("invalidate_start").value = 0
        self.pin("drain_start").value = 0
        await self.bus.start(self.PART)
        return self

    def ports(self) -> None:
        """Join the ports that the other direction does not have."""

    def source(self, name: str) -> Source:
        """Return what offers to the port of that name."""
        return Source(self.bus, f"{self.PART}__{name}", self.rng, self.idle)

    def sink(self, name: str, taken: Callable[[int], None] | None = None) -> Sink:
        """Return what takes from the port of that name; ``taken`` gets what has come."""
        return Sink(self.bus, f"{self.PART}__{name}", self.rng, self.stall, taken)

    def reader_of(self, name: str, **more: Any) -> Reader:
        """Return the host's memory behind the read client of that name."""
        place = f"{self.PART}__{name}"
        return Reader(self.bus, place, self.memory, WIDTH, self.rng, **more, **self.options)

    def pin(self, name: str) -> Any:
        """Return the handle of a pin."""
        return getattr(self.dut, f"{self.PART}__{name}")

    def count(self, name: str) -> int:
        """Return the value of a counter, or of another output."""
        return int(self.pin(name).value)

    async def pulse(self, name: str) -> None:
        """Set a pin for a cycle."""
        self.pin(name).value = 1
        await self.bus.cycle()
        self.pin(name).value = 0

    async def drain(self) -> None:
        """Run until all that was taken before is finished."""
        await self.pulse("drain_start")
        await self.bus.until(lambda: self.count("drain_done"))


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


def send_message(bench: Any, line: int, mtu: int, behind: Callable[[], None] | None = None) -> None:
    """Queue the packets of a WQE with a few SGEs, some of them spoilt, from any packet on; with
    ``resume`` or without. ``behind``: called behind each good packet. One may be too long."""
    rng, world = bench.rng, bench.world
    sges = world.sges()
    if rng.random() < 0.2:
        n = rng.randrange(len(sges))
        sges[n] = world.spoil(*sges[n])
    total = sum(size for _, size, _ in sges)
    start = rng.choice([0, mtu * rng.randint(0, total // mtu)])
    resume = 0
    while start < total and (start == 0 or rng.random() < 0.8):
        length = min(mtu, total - start)
        status = bench.send_line(line, sges, start, length, resume=resume)
        start += length
        resume = int(status == OK and rng.random() < 0.7)
        if status != OK:
            break
        if behind is not None:
            behind()
    if rng.random() < 0.1:
        bench.send_line(line, sges, total - total % 7, 8 + total % 7)


async def restart_everywhere(bench: Any) -> None:
    """A message of many SGEs begun at every packet, then walked through with ``resume``."""
    sges = [bench.world.sge(size) for size in [0, 300, 0, 0, 1, 255, 256, 257, 7, 0, 700, 16, 0]]
    total, mtu = sum(size for _, size, _ in sges), 256
    for start in range(0, total, mtu):
        bench.send_line(1, sges, start, min(mtu, total - start))
    for start in range(0, total, mtu):
        bench.send_line(1, sges, start, min(mtu, total - start), resume=start != 0)
    for start in range(0, total, 61):  # any byte
        bench.send_line(2, sges, start, min(61, total - start))
    sges = [bench.world.sge(8) for _ in range(32)]
    for start in range(0, 256, 8):
        bench.send_line(3, sges, start, 256 - start)
    await bench.finish()


def spoil_lists(bench: Any) -> tuple[Any, Any]:
    """Two regions: the page list of one cannot be read, that of the other has no page addresses."""
    memory, (unread, wrong) = bench.memory, bench.world.large[:2]
    memory.bad.add(unread.table // PAGE)
    memory.write(wrong.table + 8, (memory.fresh() * PAGE + 8).to_bytes(8, "little"))
    return unread, wrong


def use_some(bench: Any, regions: Sequence[Any], jobs: int, lines: int) -> None:
    """Queue jobs by keys and by SGEs within the first pages of ``regions``."""
    rng = bench.rng
    for n in range(jobs):
        region = rng.choice(regions)
        length = rng.choice([1, 100, 4096])
        addr = region.va + rng.randrange(0, min(region.length, 3 * PAGE) - length + 1)
        if rng.random() < 0.5:
            bench.send_key(region.key, addr, length)
        else:
            bench.send_line(n % lines, [(addr, length, region.key)], 0, length)


async def overlap_misses(
    bench: Any, latency: int, send: Callable[[int, int, int], None], answers: Callable[[], int]
) -> None:
    """Each packet's page is in a cache line of its own: ``send`` takes its number, address and key.
    All are checked in twice the ``latency`` of a read."""
    packets = 0
    for region in bench.world.large:
        for start in range(0, region.length if region.type == 2 else 0, 8 * PAGE):
            send(packets, region.va + start, region.key)
            packets += 1
    await bench.bus.until(lambda: answers() == packets)
    spent = bench.checked.times[-1] - bench.job.times[0]
    bench.dut._log.info("width %d: %d packets, all misses: %d cycles", WIDTH, packets, spent)
    assert packets >= 10 and bench.count("misses") == packets and spent < 2 * latency
    await bench.finish()


def cached_page(bench: Any) -> tuple[Any, int]:
    """The largest region of pages, and the address of its first page's first byte. Few lines of the
    cache hold all of it."""
    paged = (one for one in bench.world.large if one.type == 2)
    region = max(paged, key=lambda one: one.length)
    return region, region.va - region.first_offset


def cycles_each(
    bench: Any, name: str, times: dict[str, list[int]], count: int, most: float
) -> None:
    """Say how many cycles each of ``count`` jobs takes behind others, from the ``times`` of what
    has come of them; at most ``most``."""
    spent = {key: (one[-1] - one[0]) / (count - 1) for key, one in times.items() if one}
    text = ", ".join(f"{key} {one:.2f}" for key, one in spent.items())
    bench.dut._log.info("width %d: %s: cycles each: %s", WIDTH, name, text)
    assert all(one <= most for one in spent.values()), f"{name}: {text}"


async def answer_within(
    bench: Any, name: str, job: Callable[[], Any], answered: Callable[[], bool], most: int
) -> None:
    """Send a job twice, of which the second finds its pages cached; that one's answer takes
    at most ``most`` cycles."""
    for _ in range(2):
        job()
        await bench.bus.until(answered)
        for _ in range(5):
            await bench.bus.cycle()
    cycles = bench.checked.times[-1] - bench.job.times[-1]
    bench.dut._log.info("width %d: %s: %d cycles from job to checked", WIDTH, name, cycles)
    assert cycles <= most
