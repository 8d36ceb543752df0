"""Scatter against the models (runs inside the simulation)."""

from __future__ import annotations

import cocotb

from hdl.common.packet import packet_beat
from hdl.memory.types import AtomicWord
from hdl.ports.host import placed_beat
from hdl.ports.jobs import (
    Activation,
    Completion,
    Effects,
    ScatterChecked,
    ScatterJob,
    ScatterKind,
)
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
    ranges,
    restart_everywhere,
    send_message,
    spoil_lists,
    use_some,
)
from tests.memory.cases import FUNCTION, PD
from tests.memory.counts import Counts
from tests.memory.model import (
    LOCAL_WRITE,
    OK,
    PAGE,
    REM_ACCESS_ERR,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
)


class Executor:
    """Ends atomics in their order, each ``delay()`` cycles or more behind the one before."""

    def __init__(self, bench, delay):
        self.bench, self.delay, self.left, self.done = bench, delay, 0, False
        bench.bus.parts.append(self)

    def drive(self):
        dut, bench = self.bench.dut, self.bench
        asked = int(dut.scatter__word_qp.value)
        busy = asked in map(bench.qp_of, bench.at_work) or bool(dut.scatter__word__valid.value)
        dut.scatter__word_busy.value = busy
        self.done = bool(bench.at_work) and self.left == 0
        dut.scatter__word_done.value = dut.scatter__word_changed.value = self.done

    def sample(self):
        self.left = max(0, self.left - 1)
        if self.done:
            self.bench.executed.add(self.bench.at_work.pop(0))
            self.left = self.delay()


class Bench(Direction):
    """One Scatter with its world. Effects are given as each answer comes, as Receive does."""

    PART = "scatter"

    def __init__(self, dut, *, discards=0.1, **more):
        """discards: share of the jobs whose effects say so."""
        super().__init__(dut, **more)
        self.discards = discards
        self.jobs: list[dict] = []
        self.statuses: list[int] = []
        self.got: list[int] = []
        self.bursts: list[tuple[int, bytes, int]] = []  # expected: address, bytes, job
        self.ends: list[int] = []  # bursts that must have ended before job n's effects
        self.burst: tuple[int, bytearray] | None = None
        self.before = bytes(LANES)  # data of the beat before
        self.burst_times: list[int] = []
        self.first_times: list[int] = []  # of each burst's first beat
        self.beats = 0
        self.done_bursts = 0
        self.effects_due: list[tuple[int, dict]] = []
        self.effects_in: list[int] = []
        self.released: list[tuple[str, int]] = []
        self.qp_of = lambda number: number & 0x3FFF  # the job's
        self.words: list[tuple[int, dict]] = []  # expected: number of the atomic's job, its place
        self.at_work: list[int] = []  # jobs of atomics that have been handed over
        self.executed: set[int] = set()
        self.handed = 0

    def ports(self):
        self.payload, self.effects = self.source("payload"), self.source("effects")
        self.checked = self.sink("checked", self.answer)
        self.write = self.sink("write_client__beat", self.wrote)
        self.completion = self.sink("completion", lambda item: self.release("completion", item))
        self.reply = self.sink("reply", lambda item: self.release("reply", item))
        self.word = self.sink("word", self.hand_over)
        self.pin("word_done").value = self.pin("word_changed").value = 0
        self.pin("word_busy").value = 0

    def send(self, kind, length, status, pieces, *, setup=None, **fields):
        """Queue a job with its payload and effects, and what must come of it."""
        number = len(self.jobs)
        discard = self.rng.random() < self.discards
        job = {"kind": kind.value, "function": FUNCTION, "pd": PD, "length": length} | fields
        self.jobs.append(job)
        self.statuses.append(status)

        def offer():
            if setup:
                setup()
            return pack(ScatterJob, job)

        self.job.items.append(offer)
        if kind == ScatterKind.ATOMIC:
            place = {"qp": self.qp_of(number), "function": FUNCTION}
            place["drop"] = int(status != OK or discard)
            addr = {"addr": pieces[0][0]} if status == OK else {}
            self.words.append((number, place | addr))
        elif kind not in (ScatterKind.NONE, ScatterKind.CHECK_READ) and length:
            content = self.rng.randbytes(length)
            layout = packet_beat(WIDTH)
            for at in range(0, length, LANES):
                part = content[at : at + LANES]
                beat = {
                    "data": int.from_bytes(part.ljust(LANES, b"\xdd"), "little"),
                    "keep": (1 << len(part)) - 1,
                    "first": at == 0,
                    "last": at + LANES >= length,
                }
                self.payload.items.append(pack(layout, beat))
            if status == OK and kind != ScatterKind.DISCARD and not discard:
                at = 0
                for addr, size in pieces:
                    self.bursts.append((addr, content[at : at + size], number))
                    at += size
                assert at == length
        self.ends.append(len(self.bursts))
        complete, reply = self.rng.random() < 0.6, self.rng.random() < 0.6
        completion = {"wr_id": number, "byte_len": length, "head": number & 0xFFFF}
        effect = {
            "discard": discard,
            "complete": complete,
            "completion": completion,
            "reply": reply,
            "qp": self.qp_of(number),
            "flags": {"ack": 1, "read": number & 1},
        }
        if complete:
            self.effects_due.append(("completion", pack(Completion, completion), number))
        if reply:
            row = {"qp": self.qp_of(number), "flags": 1 | (number & 1) << 2}
            self.effects_due.append(("reply", pack(Activation, row), number))
        self.effects_in.append(pack(Effects, effect))

    def answer(self, item):
        self.got.append(unpack(ScatterChecked, item)["status"])
        self.effects.items.append(self.effects_in[len(self.got) - 1])

    def hand_over(self, item):
        """An atomic's word comes when all in front of it has been written."""
        number, wanted = self.words[self.handed]
        self.handed += 1
        word = unpack(AtomicWord, item)
        assert {name: word[name] for name in wanted} == wanted, number
        assert self.done_bursts >= self.ends[number], "an atomic in front of what came before it"
        if not word["drop"]:
            self.at_work.append(number)

    def may_be_seen(self, number):
        """All atomics up to that job have been executed."""
        must = [job for job, place in self.words if job <= number and not place["drop"]]
        return self.executed.issuperset(must)

    def wrote(self, item):
        beat = unpack(placed_beat(WIDTH), item)
        self.beats += 1
        start, stop = beat["start"], beat["stop"]
        data = self.before + beat["data"].to_bytes(LANES, "little")
        data, self.before = data[LANES - beat["up"] :][:LANES], data[LANES:]
        self.burst_times.append(self.bus.now)
        if beat["first"]:
            self.first_times.append(self.bus.now)
            own = self.qp_of(self.bursts[self.done_bursts][2])
            before = [n for n in self.at_work if n < self.bursts[self.done_bursts][2]]
            assert own not in map(self.qp_of, before), "it passes an atomic of its QP"
            assert self.burst is None and beat["function"] == FUNCTION and beat["stream_id"] == 0
            self.burst = (beat["addr"], bytearray())
            assert start == beat["addr"] % LANES
        else:
            assert start == 0
        addr, content = self.burst
        assert start < stop <= LANES and (beat["last"] or stop == LANES)
        content += data[start:stop]
        if beat["last"]:
            wanted = self.bursts[self.done_bursts]
            assert self.got[wanted[2]] == OK  # answered before it is written
            assert (addr, bytes(content)) == wanted[:2], f"job {wanted[2]}, burst at {addr:#x}"
            self.done_bursts += 1
            self.burst = None
            if not beat["more"]:  # others' beats come in between
                self.before = bytes(LANES)

    def release(self, name, item):
        wanted = [one for one in self.effects_due if one[0] == name]
        number = sum(one[0] == name for one in self.released)
        assert item == wanted[number][1]
        assert self.done_bursts >= self.ends[wanted[number][2]], "effects before the payload"
        assert self.may_be_seen(wanted[number][2]), "effects before an atomic in front of them"
        self.released.append((name, item))

    def send_line(self, line, sges, offset, length, *, resume=0, pd=PD):
        status, pieces = self.model.line(FUNCTION, pd, sges, offset, length, LOCAL_WRITE)
        self.counts.line(FUNCTION, pd, sges, offset, length, LOCAL_WRITE)
        self.send(
            ScatterKind.LINE,
            length,
            status,
            pieces,
            setup=lambda: self.lines.fill(line, sges),
            line=line,
            num_sge=len(sges),
            offset=offset,
            resume=resume,
            pd=pd,
        )
        return status

    def send_key(self, key, va, length, reach=None, *, qp=0):
        """A WRITE packet; ``reach`` bytes of its message are still to come, with its own. There is
        nothing to check of one without payload."""
        if not length:
            self.send(ScatterKind.NONE, 0, OK, [])
            return
        reach = length if reach is None else reach
        asked = (FUNCTION, PD, key, va)
        if reach != length:
            self.counts.request(*asked, reach, REMOTE_WRITE, qp=qp, check_only=True)
        self.counts.request(*asked, length, REMOTE_WRITE, qp=qp)
        if self.model.allowed(FUNCTION, PD, key, va, reach, REMOTE_WRITE, qp=qp):
            status, pieces = self.model.by_key(FUNCTION, PD, key, va, length, REMOTE_WRITE, qp=qp)
        else:
            status, pieces = REM_ACCESS_ERR, []
        self.send(ScatterKind.KEY, length, status, pieces, key=key, va=va, offset=reach, qp=qp)

    def check_read(self, key, va, length, *, qp=0):
        allowed = self.model.allowed(FUNCTION, PD, key, va, length, REMOTE_READ, qp=qp)
        self.counts.request(FUNCTION, PD, key, va, length, REMOTE_READ, qp=qp, check_only=True)
        status = OK if allowed else REM_ACCESS_ERR
        self.send(ScatterKind.CHECK_READ, 0, status, [], key=key, va=va, offset=length, qp=qp)

    def send_atomic(self, key, va, *, qp=0):
        status, pieces = self.model.by_key(FUNCTION, PD, key, va, 8, REMOTE_ATOMIC, qp=qp)
        self.counts.request(FUNCTION, PD, key, va, 8, REMOTE_ATOMIC, qp=qp)
        self.send(ScatterKind.ATOMIC, 8, status, pieces, key=key, va=va, offset=8, qp=qp)

    async def finish(self):
        await self.bus.until(lambda: len(self.got) == len(self.jobs))
        for n, (status, wanted) in enumerate(zip(self.got, self.statuses, strict=True)):
            assert status == wanted, f"job {n}: status {status}, not {wanted}: {self.jobs[n]}"
        await self.bus.until(
            lambda: (
                self.done_bursts == len(self.bursts)
                and len(self.released) == len(self.effects_due)
                and not self.payload.items
            )
        )
        for _ in range(30):
            await self.bus.cycle()
        assert len(self.released) == len(self.effects_due)
        compare_counts(self)


def mixed(bench, jobs, mtu=1024):
    """Queue a random mixture of jobs."""
    rng, world = bench.rng, bench.world
    line = 0
    while len(bench.jobs) < jobs:
        line = (line + 1) % 16
        kind = rng.randrange(12)
        if kind < 5:
            send_message(bench, line, mtu)
        elif kind < 9:
            length = rng.choice([0, 1, LANES - 1, LANES, LANES + 1, 256, 1024, 4096])
            reach = length if not length or rng.random() < 0.5 else length + rng.choice([1, 5000])
            addr, _, key = world.sge(length)
            if rng.random() < 0.2:
                addr, _, key = world.spoil(addr, max(length, 1), key)
            bench.send_key(key, addr, length, reach)
        elif kind == 9:
            bench.send(ScatterKind.NONE, 0, OK, [])
        elif kind == 10:
            bench.send(ScatterKind.DISCARD, rng.choice([1, LANES, 300]), OK, [])
        else:
            addr, length, key = world.sge(rng.choice([0, 1, 4096]))
            if rng.random() < 0.4:
                addr, length, key = world.spoil(addr, length, key)
            bench.check_read(key, addr, length)


@cocotb.test()
async def ranges_of_any_length(dut):
    """READs of up to 4 GiB from large regions are checked to the byte at either end."""
    bench = await Bench(dut, seed=33).start()
    for key, start, length in ranges(bench):
        bench.check_read(key, start, length)
    await bench.finish()
    assert bench.statuses.count(OK) > 200 and bench.statuses.count(REM_ACCESS_ERR) > 20


async def grid(dut, idle, stall, seed, jobs=60):
    bench = await Bench(dut, seed=seed, idle=idle, stall=stall).start()
    mixed(bench, jobs)
    await bench.finish()
    assert bench.count("key_errors") > 0 and (bench.count("hits") > 0) == (LINES > 0)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.4], delay=[1, 60])
async def atomics(dut, stall, delay):
    """Words are handed over in order, effects wait for them, and so do WRITEs of the same QP."""
    bench = await Bench(dut, seed=51, idle=stall, stall=stall, discards=0.15).start()
    bench.qp_of = lambda number: number * 7 % 3
    rng, world = bench.rng, bench.world
    plain = next(region for region in world.good if region.type == 1)
    for _ in range(80):
        if rng.random() < 0.5:
            addr, length, key = 8 * rng.getrandbits(61), 8, plain.key
            if rng.random() < 0.2:
                key = rng.choice(world.refused).key
            bench.send_atomic(key, addr)
        elif rng.random() < 0.7:
            addr, length, key = world.sge(rng.choice([1, LANES, 3 * LANES + 1]))
            bench.send_key(key, addr, length)
        else:
            bench.send(ScatterKind.NONE, 0, OK, [])
    Executor(bench, lambda: rng.randrange(delay))
    await bench.finish()
    assert bench.handed == len(bench.words) and not bench.at_work


@cocotb.test()
async def windows_of_one_qp(dut):
    """A window of type 2: WRITEs, checks of READs and atomics of its QP pass, no others."""
    bench = await Bench(dut, seed=52, discards=0).start()
    rng, windows = bench.rng, bench.world.windows(REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC)
    for n in range(90):
        window = rng.choice(windows)
        qp = rng.choice([window.qp, *(other.qp for other in windows)])
        word = (window.va + 8 * n + 7) & ~7
        if n % 3 == 0:
            bench.send_key(window.key, window.va + n, 300, rng.choice([300, 900]), qp=qp)
        elif n % 3 == 1:
            bench.check_read(window.key, window.va + n, 300, qp=qp)
        else:
            bench.send_atomic(window.key, word, qp=qp)
    Executor(bench, lambda: 3)
    await bench.finish()
    for kind in range(3):
        statuses = bench.statuses[kind::3]
        assert statuses.count(OK) > 9 and statuses.count(REM_ACCESS_ERR) > 6


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
async def every_restart(dut):
    await restart_everywhere(await Bench(dut, seed=21).start())


@cocotb.test()
async def every_length(dut):
    bench = await Bench(dut, seed=22).start()
    region = bench.world.large[0]
    for length in range(1, 2 * LANES + 2):
        bench.send_key(region.key, region.va + length * 37, length)
    for length in range(1, LANES + 2):  # two chunks: every cut
        page = -region.first_offset % PAGE + region.va + PAGE
        bench.send_key(region.key, page - length, LANES + 5)
        bench.send_key(region.key, page - length, 2 * LANES)
    await bench.finish()


@cocotb.test()
async def page_list_errors(dut):
    bench = await Bench(dut, seed=23).start()
    use_some(bench, [*spoil_lists(bench), *bench.world.large[2:4]], 40, 16)
    await bench.finish()
    assert set(bench.got) == {0, 4, 10}


@cocotb.test()
async def drain_waits_for_writes(dut):
    bench = await Bench(dut, seed=25, discards=0.0).start()
    region = bench.world.large[0]
    for _ in range(4):
        bench.write.stall = 0.9
        bench.send_key(region.key, region.va, 1000)
        bench.send(ScatterKind.NONE, 0, OK, [])
        await bench.bus.until(lambda: len(bench.got) == len(bench.jobs))
        due = len(bench.bursts)
        await bench.drain()
        assert bench.done_bursts >= due
        bench.write.stall = 0.0
        await bench.finish()


@cocotb.test()
async def reset_in_mid_packet(dut):
    bench = await Bench(dut, seed=26, discards=0.0).start()
    region = bench.world.large[0]
    bench.send_key(region.key, region.va, 4096)
    await bench.bus.until(lambda: bench.beats == 2)
    dut.rst.value = 1
    sinks = (bench.checked, bench.write, bench.completion, bench.reply)
    for source in (bench.job, bench.payload, bench.effects):
        source.items.clear()
        source.on = False
    for _ in range(3):
        for sink in sinks:
            sink.waiting = None
        await bench.bus.cycle()
    dut.rst.value = 0
    bench.tables.items.clear()
    for name in ("jobs", "statuses", "got", "bursts", "ends", "effects_due", "effects_in"):
        getattr(bench, name).clear()
    bench.released.clear()
    bench.counts = Counts(bench.model, LINES)
    bench.burst, bench.done_bursts = None, 0
    mixed(bench, 20)
    await bench.finish()


@cocotb.test(skip=not LINES)
async def a_line_serves_again(dut):
    bench = await Bench(dut, seed=43).start()
    await look_up_again(bench, bench.finish)


@cocotb.test()
@cocotb.parametrize(length=[0, 1, 1024])
async def everything_is_full(dut, length):
    bench = await Bench(dut, seed=44).start()
    await fill_up(bench, (bench.write, bench.completion, bench.reply), length)


@cocotb.test(skip=not LINES)
async def misses_overlap(dut):
    """Packets behind one whose page is not cached are checked meanwhile, and fill the cache."""
    latency = 200
    bench = await Bench(dut, seed=28, latency=latency, discards=0.0).start()
    await overlap_misses(
        bench, latency, lambda _, addr, key: bench.send_key(key, addr, 64), lambda: len(bench.got)
    )


@cocotb.test(skip=not LINES)
async def rates(dut):
    """Cycles that a job takes behind others, and a whole small packet: of other lines, cached."""
    bench = await Bench(dut, seed=29, discards=0.0, deadline=20_000).start()
    rng, count, size = bench.rng, 80, 64
    region, page = cached_page(bench)
    key = region.key
    sges = [page + PAGE * rng.randint(1, 38) + rng.randrange(PAGE - 256) for _ in range(count)]
    line = [[(va, 4 * size, key)] for va in sges]
    kinds = {
        "LINE": lambda n: bench.send_line(n, line[n], 0, size),
        "LINE, within the SGE": lambda n: bench.send_line(n, line[n], size, size),
        "KEY": lambda n: bench.send_key(key, sges[n], size),
        "KEY, of a longer message": lambda n: bench.send_key(key, sges[n], size, 4 * size),
        "LINE and KEY": lambda n: (kinds["KEY"] if n % 2 else kinds["LINE"])(n),
        "CHECK_READ": lambda n: bench.check_read(key, sges[n], size),
        "NONE": lambda n: bench.send(ScatterKind.NONE, 0, OK, []),
    }
    for name, send in kinds.items():
        for _ in range(2):  # the second time all pages are cached
            begun, out = len(bench.jobs), len(bench.first_times)
            for n in range(count):
                send(n)
            await bench.finish()
        taken, beats = bench.job.times[begun:], bench.first_times[out:]
        answered, effects = bench.checked.times[begun:], bench.effects.times[begun:]
        least = size // LANES
        times = {"job": taken, "answer": answered, "effects": effects, "packet": beats}
        cycles_each(bench, name, times, count, max(4.0, least + 1.0))


@cocotb.test(skip=not LINES)
async def measure(dut):
    """Cycles from job to answer, and the rate of large packets into unaligned buffers."""
    bench = await Bench(dut, seed=27, discards=0.0).start()
    region = next(one for one in bench.world.large if one.type == 2 and one.length > 60_000)
    page = -region.first_offset % PAGE + region.va
    jobs = {
        "line, 1 page": lambda: bench.send_line(1, [(page, 1024, region.key)], 0, 1024),
        "line, 2 pages": lambda: bench.send_line(1, [(page + 99, 4096, region.key)], 0, 4096),
        "key, 1 page": lambda: bench.send_key(region.key, page, 1024),
        "key, 2 pages": lambda: bench.send_key(region.key, page + 99, 4096),
        "none": lambda: bench.send(ScatterKind.NONE, 0, OK, []),
    }
    for name, job in jobs.items():
        await answer_within(bench, name, job, lambda: len(bench.got) == len(bench.jobs), 14)
        if name != "none":
            await bench.finish()
    before = bench.beats
    packets = 24 if WIDTH == 512 else 6
    for n in range(packets):
        bench.send_line(n % 16, [(page + 1 + 613 * n % 4000, 4096, region.key)], 0, 4096)
    await bench.finish()
    times = bench.burst_times[before:]
    rate = packets * 4096 / LANES / (times[-1] - times[0] + 1)
    dut._log.info("width %d: %.3f beats of payload per cycle, 4096-byte packets", WIDTH, rate)
    assert rate >= 0.97
