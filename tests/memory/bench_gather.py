"""Gather against the models (runs inside the simulation)."""

from __future__ import annotations

import random
from collections import defaultdict

import cocotb
from amaranth.lib.data import Layout

from hdl.common.packet import packet_beat
from hdl.ports.atomics import OPERAND_BYTES, OPERAND_SLOT, OPERANDS_AT
from hdl.ports.headers import TxHeader
from hdl.ports.jobs import SHORT_SINK_SGES, TxChecked, TxJob, TxSource
from tests.fields import pack, unpack
from tests.memory.alike import (
    LANES,
    LINES,
    WIDTH,
    Direction,
    answer_within,
    cached_page,
    compare_counts,
    cycles_each,
    fill_up,
    look_up_again,
    overlap_misses,
    restart_everywhere,
    send_message,
    spoil_lists,
    use_some,
)
from tests.memory.bus import Kept, Table
from tests.memory.cases import FUNCTION, PD
from tests.memory.counts import Counts
from tests.memory.model import (
    LOC_LEN_ERR,
    LOCAL_WRITE,
    OK,
    PAGE,
    REM_ACCESS_ERR,
    REMOTE_READ,
)

QPS = 4  # whose generations change
LAST = 1 << packet_beat(WIDTH)["last"].offset


class Bench(Direction):
    """One Gather with its world. ``send`` queues a job and what must come of it."""

    PART = "gather"

    def __init__(self, dut, *, seed=1, **more):
        super().__init__(dut, seed=seed, **more)
        self.others = random.Random(~seed)  # of what is passed on as it is
        self.expected: list[tuple[int, dict, bytes | None, bool]] = []
        self.generations: dict[int, int] = defaultdict(int)
        self.serial = 0
        self.notes: list[dict] = []
        self.came = self.looked_at = 0  # whole packets among the beats that were looked at

    def ports(self):
        self.generation_table = Table(
            self.bus, "gather__generation", lambda qp: self.generations[qp]
        )
        self.kept, self.to_keep = Kept(self.bus, "gather__sink"), []
        self.checked, self.header = self.sink("checked"), self.sink("header")
        self.payload = self.sink("payload")
        self.reader = self.reader_of("read_client", address_lanes=True)

    def send(self, source, length, *, setup=None, checks=0, **fields):
        """Queue a job; fields as in TxJob."""
        self.serial += 1
        header = unpack(TxHeader, self.others.getrandbits(Layout.cast(TxHeader).size))
        header |= {"psn": self.serial, "length": length}
        job = {"header": header, "source": source.value, "function": FUNCTION, "pd": PD}
        job = job | {"check_sink": checks} | fields

        self.notes.append(job)

        def offer():
            if setup:
                setup()
            return pack(TxJob, job)

        self.job.items.append(offer)
        return header

    def expect(self, header, status, pieces):
        content, bad = None, False
        if status == OK and header["length"]:
            content = b"".join(self.memory.read(*piece) for piece in pieces)
            bad = any(self.memory.fails(*piece) for piece in pieces)
        self.expected.append((status, header, content, bad))

    def send_line(self, line, sges, offset, length, *, sink=0, resume=0, pd=PD):
        """Queue a packet of a WQE with these SGEs."""
        keep = self.keep(sges) if sink else {}
        header = self.send(
            TxSource.LINE,
            length,
            setup=lambda: self.lines.fill(line, sges),
            checks=sink,
            **keep,
            line=line,
            num_sge=len(sges),
            offset=offset,
            resume=resume,
            pd=pd,
        )
        if sink:
            status = OK
            for addr, size, key in sges:
                if not self.model.allowed(FUNCTION, pd, key, addr, size, LOCAL_WRITE):
                    status = 4
                self.counts.request(FUNCTION, pd, key, addr, size, LOCAL_WRITE, check_only=True)
            self.expect(header, status, [])
        else:
            self.expect(header, *self.model.line(FUNCTION, pd, sges, offset, length, 0))
            self.counts.line(FUNCTION, pd, sges, offset, length, 0)
        return self.expected[-1][0]

    def keep(self, sges) -> dict:
        """Fields of a READ's job, whose SGEs are kept, unless it is sent again."""
        number, keeps = self.others.getrandbits(13), self.others.random() < 0.8
        long = int(len(sges) > SHORT_SINK_SGES)
        self.to_keep += [
            (number, long, slot, addr | length << 64 | key << 96)
            for slot, (addr, length, key) in enumerate(sges)
            if keeps
        ]
        return {"keep": int(keeps), "sink": {"number": number, "long": long}}

    def send_key(self, key, va, length, *, qp=0):
        header = self.send(TxSource.KEY, length, key=key, va=va, offset=0, qp=qp)
        self.expect(header, *self.model.by_key(FUNCTION, PD, key, va, length, REMOTE_READ, qp=qp))
        self.counts.request(FUNCTION, PD, key, va, length, REMOTE_READ, qp=qp)

    def send_inline(self, line, content, offset, length):
        header = self.send(
            TxSource.INLINE,
            length,
            setup=lambda: self.lines.fill_inline(line, content),
            line=line,
            offset=offset,
        )
        part = content[offset : offset + length]
        self.expected.append((OK, header, part if length else None, False))

    def send_atomic(self, line, sges, operands):
        """Queue an atomic: its operands are in the last slot, its sink is checked."""

        def setup():
            self.lines.fill(line, sges)
            self.lines.slots[line, OPERAND_SLOT] = int.from_bytes(operands, "little")

        header = self.send(
            TxSource.INLINE,
            OPERAND_BYTES,
            setup=setup,
            checks=1,
            **self.keep(sges),
            line=line,
            num_sge=len(sges),
            offset=OPERANDS_AT,
        )
        allowed = [
            self.model.allowed(FUNCTION, PD, key, addr, size, LOCAL_WRITE)
            for addr, size, key in sges
        ]
        for addr, size, key in sges:
            self.counts.request(FUNCTION, PD, key, addr, size, LOCAL_WRITE, check_only=True)
        status = OK if all(allowed) else 4
        self.expected.append((status, header, operands if status == OK else None, False))

    def send_none(self):
        self.expect(self.send(TxSource.NONE, 0), OK, [])

    async def finish(self, dropped=frozenset()):
        """Run until all is out, and compare. ``dropped``: PSNs of packets that may not come."""
        await self.answered()
        good = [one for one in self.expected if one[0] == OK and one[1]["psn"] not in dropped]
        packets = sum(one[2] is not None for one in good)
        await self.bus.until(lambda: len(self.header.items) == len(good) and self.ends() == packets)
        for _ in range(30):
            await self.bus.cycle()
        for item, (_, header, _, _) in zip(self.header.items, good, strict=True):
            assert item == pack(TxHeader, header)
        wanted = [(one[2], one[3]) for one in good if one[2] is not None]
        got = self.packets()
        assert len(got) == len(wanted)
        for n, ((data, error), (content, bad)) in enumerate(zip(got, wanted, strict=True)):
            assert error == bad, f"packet {n}: error {error}"
            assert bad or data == content, f"packet {n} of {len(content)} bytes differs"
            assert len(data) == len(content)
        assert self.kept.items == self.to_keep
        compare_counts(self)

    async def answered(self):
        """Run until each job has its answer, and compare."""
        await self.bus.until(lambda: len(self.checked.items) == len(self.expected))
        for n, (item, one) in enumerate(zip(self.checked.items, self.expected, strict=True)):
            status = unpack(TxChecked, item)["status"]
            assert status == one[0], f"job {n}: status {status}, not {one[0]}: {self.notes[n]}"

    def ends(self):
        """How many packets have come whole."""
        items = self.payload.items
        self.came += sum(bool(item & LAST) for item in items[self.looked_at :])
        self.looked_at = len(items)
        return self.came

    def packets(self):
        out, packet = [], bytearray()
        layout = packet_beat(WIDTH)
        for item in self.payload.items:
            beat = unpack(layout, item)
            count = beat["keep"].bit_count()
            assert count and beat["keep"] == (1 << count) - 1
            assert beat["first"] == (not packet)
            assert beat["last"] or count == LANES
            packet += beat["data"].to_bytes(LANES, "little")[:count]
            if beat["last"]:
                out.append((bytes(packet), beat["error"]))
                packet = bytearray()
        assert not packet
        return out


def mixed(bench, jobs, mtu=1024):
    """Queue a random mixture of jobs."""
    rng, world = bench.rng, bench.world
    line = 0
    while len(bench.expected) < jobs:
        line = (line + 1) % 256  # not used again while a job still reads it
        kind = rng.randrange(12)
        if kind < 6:
            send_message(bench, line, mtu, lambda: rng.random() < 0.2 and send_one_key(bench))
        elif kind < 8:
            bench.send_key(*one_key(bench))
        elif kind < 10:
            content = rng.randbytes(rng.randint(1, 512))
            for at in range(0, len(content), 256):
                bench.send_inline(line, content, at, min(256, len(content) - at))
        elif kind == 10:
            bench.send_none()
        else:
            sges = world.sges()
            if rng.random() < 0.3:
                n = rng.randrange(len(sges))
                sges[n] = world.spoil(*sges[n])
            bench.send_line(line, sges, 0, 0, sink=1)


def send_one_key(bench):
    bench.send_key(*one_key(bench))


def one_key(bench):
    rng, world = bench.rng, bench.world
    addr, length, key = world.sge(rng.choice([0, 1, LANES - 1, LANES, LANES + 1, 1024, 4096]))
    if rng.random() < 0.2:
        addr, length, key = world.spoil(addr, length, key)
    return key, addr, length


async def grid(dut, idle, stall, seed, jobs=60):
    bench = await Bench(dut, seed=seed, idle=idle, stall=stall).start()
    mixed(bench, jobs)
    await bench.finish()
    assert bench.count("key_errors") > 0 and (bench.count("hits") > 0) == (LINES > 0)
    return bench


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def atomics(dut, stall):
    """Operands go out of the line when the sink allows it; those of a bad sink are thrown away."""
    bench = await Bench(dut, seed=41, idle=stall / 2, stall=stall).start()
    rng, world = bench.rng, bench.world
    for number in range(120):
        line = number % 16
        kind = rng.randrange(6)
        if kind < 3:
            sizes = rng.choice(([8], [8], [0, 8], [3, 5], [1] * 8, [0] * 20 + [8]))
            sges = [world.sge(size) for size in sizes]
            if rng.random() < 0.3:
                sges[-1] = world.spoil(*sges[-1])
            bench.send_atomic(line, sges, rng.randbytes(16))
        elif kind == 3:
            content = rng.randbytes(rng.choice((1, 16, 100)))
            bench.send_inline(line, content, 0, len(content))
        elif kind == 4:
            sges = [world.sge(rng.choice((8, 300))) for _ in range(rng.randrange(1, 4))]
            bench.send_line(line, sges, 0, sum(size for _, size, _ in sges))
        else:
            bench.send_none()
    await bench.finish()


@cocotb.test()
async def free_flow(dut):
    await grid(dut, 0.0, 0.0, 11, 150)


@cocotb.test()
async def idle(dut):
    await grid(dut, 0.6, 0.0, 12)


@cocotb.test()
async def backpressure(dut):
    await grid(dut, 0.0, 0.6, 13)


@cocotb.test()
async def both(dut):
    await grid(dut, 0.4, 0.4, 14)


@cocotb.test()
async def windows_of_one_qp(dut):
    """A window of type 2: the job's QP decides, and other jobs in between have others."""
    bench = await Bench(dut, seed=31).start()
    windows = bench.world.windows(REMOTE_READ)
    for n in range(60):
        window = bench.rng.choice(windows)
        qp = bench.rng.choice([window.qp, *(other.qp for other in windows)])
        bench.send_key(window.key, window.va + n, 300, qp=qp)
        if n % 3 == 0:
            bench.send_key(*one_key(bench), qp=qp)
    await bench.finish()
    statuses = [one[0] for one in bench.expected]
    assert statuses.count(OK) > 20 and statuses.count(REM_ACCESS_ERR) > 10


@cocotb.test()
async def every_restart(dut):
    await restart_everywhere(await Bench(dut, seed=21).start())


@cocotb.test()
async def end_of_address_space(dut):
    """An SGE that runs over the last address: what lies beyond is refused, not wrapped round."""
    bench = await Bench(dut, seed=28).start()
    dma = next(one for one in bench.world.good if one.type == 1)
    sges = [((1 << 64) - 100, 300, dma.key)]
    for offset, length in [(0, 50), (60, 30), (60, 40), (99, 1), (100, 1), (150, 100), (0, 100)]:
        bench.send_line(offset % 16, sges, offset, length)
    bench.send_line(3, sges, 0, 99)
    bench.send_line(3, sges, 99, 1, resume=1)
    await bench.finish()


@cocotb.test()
async def no_sges(dut):
    """A line without SGEs, and SGEs of no bytes: too short for a packet, enough for a sink."""
    bench = await Bench(dut, seed=30).start()
    empty, some = bench.world.sge(0), bench.world.sge(64)
    for line, sges in enumerate([[], [empty], [empty, empty, empty], [some, empty], [empty, some]]):
        bench.send_line(line, sges, 0, 64)
        bench.send_line(line, sges, 0, 0, sink=1)
        bench.send_line(line, sges, 64, 1)
    await bench.finish()
    assert {one[0] for one in bench.expected} == {OK, LOC_LEN_ERR}


@cocotb.test()
async def inline_lengths(dut):
    """Inline messages of every length up to 70 bytes, and the longest."""
    bench = await Bench(dut, seed=22).start()
    for line, length in enumerate([*range(0, 70), 255, 256, 257, 511, 512]):
        content = bench.rng.randbytes(length)
        bench.send_inline(line, content, 0, length)
    await bench.finish()


@cocotb.test()
async def host_read_errors(dut):
    """Page lists that cannot be read or hold no page addresses; payload that cannot be read."""
    bench = await Bench(dut, seed=23).start()
    memory, (page_bad, good) = bench.memory, bench.world.large[2:4]
    list_bad, entry_bad = spoil_lists(bench)
    first = int.from_bytes(memory.read(page_bad.table, 8), "little")
    memory.bad.add(first // PAGE)
    use_some(bench, [list_bad, entry_bad, page_bad, good], 60, 256)
    await bench.finish()
    statuses = {one[0] for one in bench.expected}
    assert statuses == {0, 4, 10} and any(one[3] for one in bench.expected)
    assert bench.count("read_errors") > 0
    # A list that became readable is read again.
    memory.bad.discard(list_bad.table // PAGE)
    bench.send_key(list_bad.key, list_bad.va, 64)
    await bench.finish()


@cocotb.test()
async def invalidation_and_drain(dut):
    """A region's pages change: after drain and invalidation the new ones are used."""
    bench = await Bench(dut, seed=24, latency=60).start()
    memory, region = bench.memory, bench.world.large[1]
    other = bench.world.large[0]
    for _ in range(3):
        bench.send_key(region.key, region.va, min(region.length, 4096))
        bench.send_key(other.key, other.va, 4096)
    await bench.bus.until(lambda: len(bench.checked.items) >= 6)
    await bench.pulse("drain_start")
    assert not bench.count("drain_done")
    for _ in range(4):  # later jobs do not hold it up, and must not be waited for
        bench.send_key(other.key, other.va + 5, 4000)
    await bench.bus.until(lambda: bench.count("drain_done"))
    assert len([one for one in bench.reader.requests]) >= 6
    memory.write(region.table, (memory.fresh() * PAGE).to_bytes(8, "little"))
    dut.gather__invalidate_mr.value = region.index
    await bench.pulse("invalidate_start")
    await bench.bus.until(lambda: bench.count("invalidate_done"))
    bench.counts.forget(region.index)
    misses = bench.count("misses")
    for _ in range(2):
        bench.send_key(region.key, region.va, 1000)
    await bench.finish()
    assert bench.count("misses") > misses


@cocotb.test()
async def drain_waits_for_data(dut):
    """Drain is not done before the last beat of earlier jobs' reads is back."""
    bench = await Bench(dut, seed=25, latency=200).start()
    region = bench.world.large[0]
    bench.send_key(region.key, region.va, 2000)
    bench.send_none()
    await bench.bus.until(lambda: len(bench.checked.items) == 2)
    await bench.drain()
    assert bench.bus.now >= bench.reader.sink.times[-1] + 200
    await bench.finish()


class Generations:
    """Packets of requesters whose generations change, and what may become of each."""

    def __init__(self, bench):
        self.bench = bench
        self.latest: dict[int, int] = {}  # PSN -> QP, while the packet's generation is the QP's
        self.never: set[int] = (
            set()
        )  # PSNs of packets whose generation was over when they were answered
        self.either: set[int] = set()  # ... or was over before they were out

    def send(self, qp, *, request=1):
        """Queue a packet of one of the kinds that wait for the payload of others."""
        bench, rng = self.bench, self.bench.rng
        kind, region = rng.randrange(4), bench.world.large[0]
        if kind == 0:
            bench.send_none()
        elif kind == 1:
            bench.send_inline(bench.serial % 256, rng.randbytes(40), 0, 40)
        else:
            length = rng.choice([1, LANES, 1000, 4096])
            bench.send_key(region.key, region.va + rng.randrange(region.length - length), length)
        job, offer = bench.notes[-1], bench.job.items[-1]
        job |= {"qp": qp, "request": request}

        def offered():
            job["generation"] = bench.generations[qp]
            if request and kind != 1:
                self.latest[job["header"]["psn"]] = qp
            return offer()

        bench.job.items[-1] = offered

    def sent(self):
        return {unpack(TxHeader, item)["psn"] for item in self.bench.header.items}

    def advance(self, qp):
        """The QP goes back: what it has handed over is stale from the next cycle on."""
        bench, sent = self.bench, self.sent()
        bench.generations[qp] = (bench.generations[qp] + 1) % 4
        order = [header["psn"] for _, header, _, _ in bench.expected]
        answered = set(order[: len(bench.checked.items)])
        for psn in [psn for psn, one in self.latest.items() if one == qp]:
            del self.latest[psn]
            if psn not in sent:
                (self.either if psn in answered else self.never).add(psn)

    async def check(self):
        """What has to be out is out, nothing else is, and each packet is accounted for."""
        bench = self.bench
        await bench.answered()
        await bench.drain()
        before = -1
        while before != len(bench.payload.items) + len(bench.header.items):
            before = len(bench.payload.items) + len(bench.header.items)
            for _ in range(200):
                await bench.bus.cycle()
        dropped = {header["psn"] for _, header, _, _ in bench.expected} - self.sent()
        assert self.never <= dropped, f"stale and sent: {sorted(self.never - dropped)}"
        assert dropped <= self.never | self.either, "dropped and not stale"
        assert bench.count("stale") == len(dropped)
        await bench.finish(dropped)
        return dropped


@cocotb.test()
async def stale_requests(dut):
    """A QP goes back while its packets wait: they are dropped, and nobody else's are."""
    bench = await Bench(dut, seed=31, latency=100).start()
    generations = Generations(bench)
    for n in range(40):
        generations.send(n % 2)
    await bench.bus.until(lambda: len(bench.checked.items) > 20)
    generations.advance(1)
    for n in range(20):
        generations.send(n % 2, request=n % 4 != 3)
    dropped = await generations.check()
    assert len(dropped) > (1 if LINES else 0)  # one by one, none waits


@cocotb.test(skip=not LINES)  # one by one, too few packets wait to be dropped
async def eras_at_random(dut):
    bench = await Bench(dut, seed=32, latency=200, stall=0.7, deadline=80_000).start()
    generations, dropped = Generations(bench), set()
    for _ in range(3):
        # No packet waits here, so none of these is taken for one of four generations later.
        for qp in bench.rng.sample(3 * list(range(QPS)), 3 * QPS):
            for _ in range(bench.rng.randrange(16)):
                generations.send(bench.rng.randrange(QPS))
            for _ in range(bench.rng.randrange(200)):
                await bench.bus.cycle()
            generations.advance(qp)
        dropped |= await generations.check()
    assert len(dropped) > 20


@cocotb.test()
async def reset_in_mid_packet(dut):
    bench = await Bench(dut, seed=26).start()
    region = bench.world.large[0]
    bench.send_key(region.key, region.va, 4096)
    await bench.bus.until(lambda: len(bench.payload.items) == 2)
    dut.rst.value = 1
    bench.reader.items.clear()
    bench.tables.items.clear()
    bench.payload.waiting = bench.header.waiting = bench.checked.waiting = None
    for _ in range(3):
        await bench.bus.cycle()
    bench.reader.items.clear()
    bench.tables.items.clear()
    dut.rst.value = 0
    for sink in (bench.payload, bench.header, bench.checked):
        sink.items.clear()
        sink.waiting = None
    bench.expected.clear()
    bench.notes.clear()
    bench.counts = Counts(bench.model, LINES)
    mixed(bench, 20)
    await bench.finish()


@cocotb.test(skip=not LINES)
async def a_line_serves_again(dut):
    bench = await Bench(dut, seed=43).start()
    await look_up_again(bench, bench.answered)
    await bench.finish()


@cocotb.test()
@cocotb.parametrize(length=[0, 1, 1024])
async def everything_is_full(dut, length):
    bench = await Bench(dut, seed=44).start()
    await fill_up(bench, (bench.header, bench.payload), length)


@cocotb.test(skip=not LINES)
async def misses_overlap(dut):
    """Packets behind one whose page is not cached are checked meanwhile."""
    latency = 200
    bench = await Bench(dut, seed=28, latency=latency).start()
    await overlap_misses(
        bench,
        latency,
        lambda line, addr, key: bench.send_line(line, [(addr, 64, key)], 0, 64),
        lambda: len(bench.checked.items),
    )


@cocotb.test(skip=not LINES)
async def rates(dut):
    """Cycles that a job takes behind others, and a whole small packet: of other lines, cached."""
    bench = await Bench(dut, seed=29, deadline=20_000).start()
    rng, count, size = bench.rng, 40, 64
    region, page = cached_page(bench)
    key = region.key
    sges = [page + PAGE * rng.randint(1, 38) + rng.randrange(PAGE - 256) for _ in range(count)]
    line = [[(va, 4 * size, key)] for va in sges]
    inline = rng.randbytes(512)
    long = [(page + PAGE, count * size, key)]
    kinds = {
        "LINE": lambda n: bench.send_line(n, line[n], 0, size),
        "LINE, within the SGE": lambda n: bench.send_line(n, line[n], size, size),
        "LINE, resumed": lambda n: bench.send_line(0, long, n * size, size, resume=n > 0),
        "LINE, sink": lambda n: bench.send_line(n, line[n], 0, 0, sink=1),
        "KEY": lambda n: bench.send_key(key, sges[n], size),
        "LINE and KEY": lambda n: (kinds["KEY"] if n % 2 else kinds["LINE"])(n),
        "LINE and INLINE": lambda n: (kinds["INLINE, 16"] if n % 2 else kinds["LINE"])(n),
        "INLINE, 16": lambda n: bench.send_inline(n, inline, 0, 16),
        "INLINE, 64": lambda n: bench.send_inline(n, inline, 0, size),
        "NONE": lambda n: bench.send_none(),
    }
    for name, send in kinds.items():
        for _ in range(2):  # the second time all pages are cached
            begun, out = len(bench.job.times), len(bench.payload.times)
            for n in range(count):
                send(n)
            await bench.finish()
        taken, beats = bench.job.times[begun:], bench.payload.times[out:]
        answered = bench.checked.times[begun:]
        packet = 16 if name == "INLINE, 16" else size  # bytes
        least = -(-packet // LANES)
        if name.startswith(("LINE", "KEY")):  # its beats come as they lie in host memory
            least = sum(-(-(va % LANES + size) // LANES) for va in sges) / count
        times = {"job": taken, "answer": answered, "packet": beats}
        cycles_each(bench, name, times, count, max(4.0, least + 0.25))


@cocotb.test(skip=not LINES)
async def measure(dut):
    """Cycles from job to answer, and the rate of large packets from unaligned buffers."""
    bench = await Bench(dut, seed=27).start()
    region = next(one for one in bench.world.large if one.type == 2 and one.length > 60_000)
    page = -region.first_offset % PAGE + region.va  # an address that is at the start of a page
    jobs = {
        "line, 1 page": lambda: bench.send_line(1, [(page, 1024, region.key)], 0, 1024),
        "line, 2 pages": lambda: bench.send_line(1, [(page + 99, 4096, region.key)], 0, 4096),
        "line, mid SGE": lambda: bench.send_line(1, [(page, 2048, region.key)], 1024, 1024),
        "key, 1 page": lambda: bench.send_key(region.key, page, 1024),
        "key, 2 pages": lambda: bench.send_key(region.key, page + 99, 4096),
        "inline 64": lambda: bench.send_inline(1, bytes(64), 0, 64),
        "none": bench.send_none,
    }
    for name, job in jobs.items():
        await answer_within(
            bench, name, job, lambda: len(bench.checked.items) == len(bench.expected), 15
        )
    await bench.finish()
    bench.reader.latency = 250 if WIDTH == 512 else 100
    before = len(bench.payload.items)
    packets = 24 if WIDTH == 512 else 6
    for n in range(packets):
        bench.send_line(n % 256, [(page + 1 + 613 * n % 4000, 4096, region.key)], 0, 4096)
    await bench.finish()
    times = bench.payload.times[before:]
    skip = len(times) // 3  # until the pipe has filled
    rate = (len(times) - 1 - skip) / (times[-1] - times[skip])
    dut._log.info("width %d: %.3f beats per cycle of 4096-byte packets", WIDTH, rate)
    assert rate >= 0.97
