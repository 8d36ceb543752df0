"""AtomicUnit: random atomics against a model of memory, forwarding, order and throughput."""

import random
from collections import deque

import pytest

from hdl.config import NicConfig
from hdl.memory.atomic import DEPTH, AtomicUnit
from tests.simulate import simulate

WORD = 1 << 64
ERROR = object()  # what a word holds that the host does not give


class Host:
    """Host memory behind the engines: reads in order, none before the writes accepted before it."""

    def __init__(self, *, latency: int, rng: random.Random, bad: frozenset = frozenset()):
        self.words, self.bad, self.latency, self.rng = {}, bad, latency, rng
        self.writes, self.reads = [], 0
        self._pending = deque()  # (cycle, value)
        self.cycle = 0

    def word(self, addr: int) -> int:
        return self.words.setdefault(addr, self.rng.getrandbits(64))

    async def serve(self, ctx, dut, pace):
        request, response = dut.read_client.req, dut.read_client.rsp
        beat = dut.write_client.beat
        while True:
            ctx.set(request.ready, pace())
            ctx.set(beat.ready, pace())
            answered = bool(self._pending) and self._pending[0][0] <= self.cycle
            ctx.set(response.valid, answered)
            if answered:
                _, addr, value = self._pending.popleft()
                ctx.set(response.payload.last, 1)
                ctx.set(response.payload.error, addr in self.bad)
                ctx.set(response.payload.data, value)
            *_, asks, asked, writes, written = await ctx.tick().sample(
                request.valid & request.ready, request.payload, beat.valid & beat.ready, beat.p
            )
            self.cycle += 1
            if writes:  # before a read of the same cycle, which was accepted later or with it
                assert written.keep == 0xFF and written.first and written.last
                self.words[(written.function, written.addr)] = written.data & (WORD - 1)
                self.writes.append((written.function, written.addr))
            if asks:
                assert asked.length == 8
                addr = (asked.function, asked.addr)
                self._pending.append((self.cycle + self.latency, addr, self.word(addr)))
                self.reads += 1


def model(words, addr, request):
    """What the atomic finds; the word becomes what it makes of it."""
    old = words[addr]
    if old is not ERROR and request["compares"]:
        words[addr] = request["swap_add"] if old == request["compare"] else old
    elif old is not ERROR:
        words[addr] = (old + request["swap_add"]) % WORD
    return old


def run(operations, *, latency=20, stalls=0.0, gaps=0.0, bad=(), seed=1):
    """Executes (function, address, QP, drop, request), and compares each result and all words.

    Returns host and the cycles it took."""
    dut = AtomicUnit(config=NicConfig(width=64))
    rng = random.Random(seed)
    host = Host(latency=latency, rng=rng, bad=frozenset(bad))
    keys = {(function, addr) for function, addr, *_ in operations}
    words = {key: ERROR if key in host.bad else host.word(key) for key in keys}
    results, done, counts = [], [], {"put": 0, "taken": 0}

    async def put(ctx):
        for _, _, _, _, request in operations:
            ctx.set(dut.request.payload, request)
            ctx.set(dut.request.valid, 1)
            await ctx.tick()
            ctx.set(dut.request.valid, 0)
            counts["put"] += 1
            while counts["put"] - counts["taken"] > 20 or rng.random() < gaps:
                await ctx.tick()

    async def places(ctx):
        for function, addr, qp, drop, _ in operations:
            while rng.random() < gaps:
                await ctx.tick()
            ctx.set(dut.word.payload, {"function": function, "addr": addr, "qp": qp, "drop": drop})
            ctx.set(dut.word.valid, 1)
            await ctx.tick().until(dut.word.ready)
            counts["taken"] += 1
            ctx.set(dut.word.valid, 0)

    async def collect(ctx):
        wanted = [one for one in operations if not one[3]]
        for function, addr, _, _, request in wanted:
            index, row = (
                await ctx.tick()
                .sample(dut.result.index, dut.result.row)
                .until(dut.result.enable & dut.done)
            )
            results.append(row)
            old = model(words, (function, addr), request)
            assert index == request["resource"]
            assert row.failed == (old is ERROR)
            assert old is ERROR or row.value == old, f"{len(results)} of {len(wanted)}"
        done.append(host.cycle)

    async def serve(ctx):
        await host.serve(ctx, dut, lambda: rng.random() >= stalls)

    simulate(
        dut, put, places, collect, deadline=400 + 60 * len(operations) + latency * len(operations),
        background=[serve],
    )  # fmt: skip
    assert {k: v for k, v in words.items() if v is not ERROR} == {
        key: host.words[key] for key in keys if key not in host.bad
    }
    return host, done[0]


def operation(rng, keys, known, n, *, drops=0.0):
    """A random atomic; compares often expect what the word may hold."""
    function, addr = rng.choice(keys)
    swap = rng.choice((0, 1, WORD - 1, rng.getrandbits(64)))
    known.append(swap)
    request = {
        "compares": rng.randrange(2),
        "swap_add": swap,
        "compare": rng.choice(known[-6:]),
        "resource": n % 1024,
    }
    return function, addr, rng.randrange(4), rng.random() < drops, request


@pytest.mark.parametrize("words", [1, 3, 200])
@pytest.mark.parametrize("latency, stalls, gaps", [(1, 0.0, 0.0), (40, 0.0, 0.0), (9, 0.5, 0.3)])
def test_random_atomics(words, latency, stalls, gaps):
    rng = random.Random(f"{words}-{latency}")
    keys = [(rng.randrange(2), 8 * rng.getrandbits(61 if words > 3 else 3)) for _ in range(words)]
    known = [0]
    operations = [operation(rng, keys, known, n, drops=0.1) for n in range(300)]
    run(operations, latency=latency, stalls=stalls, gaps=gaps)


def test_a_word_at_work_is_forwarded():
    """Only the first of many additions to one word reads it; functions have words of their own."""
    add = {"compares": 0, "swap_add": 1, "compare": 0}
    operations = [(n % 2, 0x1000, 1, 0, add | {"resource": n}) for n in range(24)]
    host, _ = run(operations, latency=200)
    assert host.reads == 2
    assert len(host.writes) == 24


def test_unequal_writes_nothing():
    swap = {"compares": 1, "swap_add": 5, "compare": 1, "resource": 0}
    host, _ = run([(0, 0x2000, 1, 0, swap), (0, 0x2000, 1, 0, swap)])
    assert host.writes == []


def test_words_that_the_host_does_not_give():
    """They are not written, and whoever was to be handed one fails as well."""
    add = {"compares": 0, "swap_add": 1, "compare": 0}
    operations = [(0, 8 * (n % 2), 1, 0, add | {"resource": n}) for n in range(20)]
    host, _ = run(operations, bad=[(0, 8)], latency=100)
    assert set(host.writes) == {(0, 0)}


@pytest.mark.parametrize("words, cycles", [(1, 4), (1000, 6)])
def test_throughput(words, cycles):
    """At 250 MHz 4 cycles are 62 million a second, and 6 are 41 million, with a host of 500 ns."""
    add = {"compares": 0, "swap_add": 1, "compare": 0}
    operations = [(0, 8 * (n % words), 1, 0, add | {"resource": n}) for n in range(200)]
    _, took = run(operations, latency=125)
    assert took <= 150 + cycles * len(operations)


def test_busy_names_the_qps_at_work():
    dut = AtomicUnit(config=NicConfig(width=64))

    async def bench(ctx):
        ctx.set(dut.qp, 7)
        assert not ctx.get(dut.busy)
        add = {"compares": 0, "swap_add": 1, "compare": 0, "resource": 3}
        ctx.set(dut.request.payload, add)
        ctx.set(dut.request.valid, 1)
        ctx.set(dut.word.payload, {"function": 1, "addr": 64, "qp": 7, "drop": 0})
        ctx.set(dut.word.valid, 1)
        ctx.set(dut.read_client.req.ready, 1)
        ctx.set(dut.write_client.beat.ready, 1)
        assert ctx.get(dut.busy)
        await ctx.tick()
        ctx.set(dut.request.valid, 0)
        ctx.set(dut.word.valid, 0)
        for _ in range(10):
            await ctx.tick()
            assert ctx.get(dut.busy)
        ctx.set(dut.qp, 8)
        assert not ctx.get(dut.busy)
        ctx.set(dut.qp, 7)
        ctx.set(dut.read_client.rsp.payload, {"data": 41, "keep": 0, "first": 1, "last": 1})
        ctx.set(dut.read_client.rsp.valid, 1)
        await ctx.tick()
        ctx.set(dut.read_client.rsp.valid, 0)
        await ctx.tick().until(dut.done)
        assert not ctx.get(dut.busy)

    simulate(dut, bench)
    assert DEPTH >= 16
