"""MEMCPY in the memory box: who gets what of the scatter, and when a copy ends, and how."""

import random
from collections import deque

import pytest

from hdl.abi.enums import WcStatus
from hdl.config import NicConfig
from hdl.memory.copy import CopyExit, LocalCopy
from hdl.memory.turns import ScatterTurns
from hdl.ports.jobs import ScatterKind
from hdl.ports.shared import COPY
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=4, mtu=256, memcpy=True)


def words(**fields):
    """The fields of ``COPY`` as ``va``, ``rkey`` and ``imm`` of a header."""
    bits = COPY.const(fields).as_value().value
    return {"va": bits % (1 << 64), "rkey": bits >> 64 & 0xFFFF_FFFF, "imm": bits >> 96}


async def offer(ctx, rng, port, pause=0.3, **fields):
    """Offer something, until it is taken; before that sometimes nothing."""
    while rng.random() < pause:
        await ctx.tick()
    for name, value in fields.items():
        part = port.payload
        for step in name.split("__"):
            part = getattr(part, step)
        ctx.set(part, value)
    ctx.set(port.valid, 1)
    await ctx.tick().until(port.ready)
    ctx.set(port.valid, 0)


async def take(ctx, rng, port, pause=0.3):
    """Take the next one; before that sometimes be busy."""
    while rng.random() < pause:
        await ctx.tick()
    ctx.set(port.ready, 1)
    (payload,) = await ctx.tick().sample(port.payload).until(port.valid)
    ctx.set(port.ready, 0)
    return payload


class TwoSources:
    """Two sources of random jobs, which carry a number in ``va``, and a scatter. What belongs to a
    job carries its number as well."""

    def __init__(self, seed, jobs=60):
        self.dut, self.rng, self.jobs = ScatterTurns(config=CONFIG), random.Random(seed), jobs
        self.kinds = {}
        kinds = [ScatterKind.NONE, ScatterKind.DISCARD, ScatterKind.LINE, ScatterKind.KEY]
        others = [ScatterKind.CHECK_READ, ScatterKind.ATOMIC, ScatterKind.FLUSH]
        self.numbers = {"packets": [*range(jobs)], "copies": [*range(1000, 1000 + jobs)]}
        for name, numbers in self.numbers.items():
            for number in numbers:
                some = kinds if name == "copies" else kinds + others
                self.kinds[number] = self.rng.choice(some)
        # Of the scatter: jobs without an answer, effects, payload, end; and how many are in it.
        self.answers, self.effects, self.payloads, self.ends = (deque() for _ in range(4))
        self.inside, self.order, self.landed = 0, [], 0

    def bears(self, number):
        return self.kinds[number] in (ScatterKind.DISCARD, ScatterKind.LINE, ScatterKind.KEY)

    def source(self, name):
        port, numbers, rng = getattr(self.dut, name), self.numbers[name], random.Random(len(name))
        answered = deque()

        async def jobs(ctx):
            for number in numbers:
                await offer(ctx, rng, port.job, va=number, kind=self.kinds[number])

        async def payload(ctx):
            for number in filter(self.bears, numbers):
                beats = rng.randrange(1, 4)
                for n in range(beats):
                    last = int(n == beats - 1)
                    await offer(ctx, rng, port.payload, data=number, last=last)

        async def checks(ctx):
            for number in numbers:
                assert (await take(ctx, rng, port.checked)).status == number % 256
                answered.append(number)

        async def effects(ctx):
            for _ in numbers:
                while not answered:
                    await ctx.tick()
                number = answered.popleft()
                named = self.brought_about(number) if name == "packets" else {}
                await offer(ctx, rng, port.effects, qp=number, **named)

        return jobs, payload, checks, effects

    @staticmethod
    def brought_about(number):
        """What the packet of that number brings about."""
        names = ("discard", "saved", "complete", "reply")
        return {name: number >> n & 1 for n, name in enumerate(names)}

    def scatter(self):
        o, rng, total = self.dut.o, random.Random(7), 2 * self.jobs

        async def jobs(ctx):
            for _ in range(total):
                while self.inside == 32:
                    await ctx.tick()
                job = await take(ctx, rng, o.job)
                assert job.kind == self.kinds[job.va]
                self.inside += 1
                for queue in (self.answers, self.effects):
                    queue.append(job.va)
                self.order.append(job.va)

        async def answers(ctx):
            for _ in range(total):
                while not self.answers:
                    await ctx.tick()
                await offer(ctx, rng, o.checked, status=self.answers.popleft() % 256)

        async def effects(ctx):
            for _ in range(total):
                found = await take(ctx, rng, o.effects)
                assert found.qp == self.effects.popleft()
                # A piece of a MEMCPY brings nothing about.
                for name, given in self.brought_about(found.qp).items():
                    assert found[name] == (given if found.qp < 1000 else 0)
                self.payloads.append(found.qp)

        async def payload(ctx):
            for _ in range(total):
                while not self.payloads:
                    await ctx.tick()
                number = self.payloads.popleft()
                while self.bears(number):
                    beat = await take(ctx, rng, o.payload)
                    assert beat.data == number
                    if beat.last:
                        break
                for _ in range(4):
                    await ctx.tick()
                ctx.set(self.dut.released, 1)
                self.landed += number >= 1000
                await ctx.tick()
                ctx.set(self.dut.released, 0)
                self.inside -= 1

        return jobs, answers, effects, payload

    async def count(self, ctx):
        seen = 0
        async for *_, landed in ctx.tick().sample(self.dut.landed):
            seen += landed
            self.seen = seen


@pytest.mark.parametrize("seed", range(4))
def test_each_source_gets_its_own(seed):
    """Answers, payload, effects and ends belong to whose job they are, in any order of jobs; both
    sources go on beside each other, each in its order."""
    bench = TwoSources(seed)
    parts = [*bench.source("packets"), *bench.source("copies"), *bench.scatter()]
    simulate(bench.dut, *parts, deadline=20_000, background=[bench.count])
    for numbers in bench.numbers.values():
        assert [one for one in bench.order if one in set(numbers)] == numbers
    turns = sum(
        (a < 1000) != (b < 1000) for a, b in zip(bench.order, bench.order[1:], strict=False)
    )
    assert turns > bench.jobs / 2, "they take turns"
    assert bench.seen == bench.landed == bench.jobs


def test_payload_follows_its_header():
    """``CopyExit``: each packet's payload goes where its header has gone."""
    dut, rng = CopyExit(config=CONFIG), random.Random(3)
    packets = [(n, rng.randrange(2), rng.randrange(4)) for n in range(80)]

    async def headers(ctx):
        for number, copied, beats in packets:
            await offer(ctx, rng, dut.header, psn=number, copied=copied, length=beats)

    async def payload(ctx):
        for number, _, beats in packets:
            for n in range(beats):
                await offer(ctx, rng, dut.payload, data=number, last=int(n == beats - 1))

    def reader(copied, header, data):
        mine = [one for one in packets if one[1] == copied]

        async def heads(ctx):
            for number, *_ in mine:
                assert (await take(ctx, rng, header)).psn == number

        async def beats(ctx):
            for number, _, count in mine:
                for _ in range(count):
                    assert (await take(ctx, rng, data)).data == number

        return heads, beats

    to_egress = reader(0, dut.header_out, dut.payload_out)
    simulate(dut, headers, payload, *to_egress, *reader(1, dut.piece, dut.piece_data))


class Pieces:
    """Copies of several QPs, piece by piece among each other, some of which fail somewhere."""

    def __init__(self, seed):
        self.dut, self.rng = LocalCopy(config=CONFIG), random.Random(seed)
        left = {qp: deque(range(8)) for qp in range(CONFIG.qps)}
        self.pieces, self.wanted = [], []
        under_way = {}
        while any(left.values()) or under_way:
            qp = self.rng.randrange(CONFIG.qps)
            if qp not in under_way:
                if not left[qp]:
                    continue
                number = left[qp].popleft()
                under_way[qp] = [number, self.rng.randrange(5), None]
                self.piece(qp, number, under_way[qp], begins=1)
            else:
                copy = under_way[qp]
                copy[1] -= 1
                self.piece(qp, copy[0], copy, ends=int(copy[1] < 0))
                if copy[1] < 0:
                    self.wanted.append((qp, copy[0], copy[2] or WcStatus.SUCCESS))
                    del under_way[qp]

    def piece(self, qp, number, copy, *, begins=0, ends=0):
        """Add a piece, and what becomes of it: a reason to fail in every tenth."""
        fault = self.rng.choice(("refused", "unread", "bad") + ("",) * 27)
        length = 0 if begins or fault == "refused" else self.rng.choice((0, 1, 8, 100, 256))
        if fault == "unread" and not length:
            fault = ""
        # A failure in the gather bars what is behind it.
        barred = fault in ("refused", "unread") or (copy[2] and copy[3:] == ["barred"])
        kind = ScatterKind.DISCARD if barred else ScatterKind.LINE
        kind = kind if length else ScatterKind.NONE
        if fault == "bad" and kind != ScatterKind.LINE:
            fault = ""
        if fault in ("refused", "unread") and copy[3:] != ["barred"]:
            copy.append("barred")
        if fault and not copy[2]:
            copy[2] = WcStatus.GENERAL_ERR if fault == "unread" else WcStatus.LOC_PROT_ERR
        named = {"begins": begins, "ends": ends, "refused": int(fault == "refused")}
        self.pieces.append((qp, number, length, kind, fault, named))

    def run(self):
        dut, rng, sent, checked, landed = self.dut, self.rng, deque(), deque(), deque()
        told = []

        async def headers(ctx):
            for qp, number, length, _, _, named in self.pieces:
                values = words(number=number, position=number + 100, offset=number, **named)
                ctx.set(dut.enter, 1)
                await ctx.tick()
                ctx.set(dut.enter, 0)
                fields = values | {"departure__qp": qp, "length": length, "copied": 1}
                await offer(ctx, rng, dut.piece, **fields)

        async def data(ctx):
            for _, number, length, _, fault, _ in self.pieces:
                for n in range(-(-length // 8)):
                    last = int(8 * (n + 1) >= length)
                    error = int(last and fault == "unread")
                    await offer(ctx, rng, dut.data, data=number, last=last, error=error)

        async def jobs(ctx):
            for qp, number, length, kind, fault, _ in self.pieces:
                job = await take(ctx, rng, dut.job)
                assert (job.kind, job.length, job.qp) == (kind, length, qp)
                assert job.offset == number or job.length == 0
                sent.append((number, -(-length // 8)))
                checked.append(WcStatus.LOC_LEN_ERR if fault == "bad" else 0)

        async def answers(ctx):
            for _ in self.pieces:
                while not checked:
                    await ctx.tick()
                await offer(ctx, rng, dut.checked, status=checked.popleft())

        async def effects(ctx):
            for qp, *_ in self.pieces:
                found = await take(ctx, rng, dut.effects)
                assert not (found.complete or found.reply or found.discard) and found.qp == qp
                landed.append(sent.popleft())

        async def written(ctx):
            for _ in self.pieces:
                while not landed:
                    await ctx.tick()
                number, beats = landed.popleft()
                for _ in range(beats):
                    assert (await take(ctx, rng, dut.payload)).data == number
                ctx.set(dut.released, 1)
                await ctx.tick()
                ctx.set(dut.released, 0)

        async def ends(ctx):
            for _ in self.wanted:
                one = await take(ctx, rng, dut.copied)
                assert one.position == one.number + 100
                told.append((one.qp, one.number, one.status))

        simulate(dut, headers, data, jobs, answers, effects, written, ends, deadline=60_000)
        return told


@pytest.mark.parametrize("seed", range(6))
def test_copies_end_as_their_pieces_do(seed):
    """Whatever fails, and wherever: each copy ends once, when its last piece is written, with the
    status of its first failure; behind a failure of the gather nothing of it is written."""
    bench = Pieces(seed)
    assert bench.run() == bench.wanted
    assert len({status for *_, status in bench.wanted}) > 1


def test_a_drain_waits_for_each_piece():
    """A drain ends when the pieces that came before have been dealt with, not those behind."""
    dut, done = LocalCopy(config=CONFIG), []

    async def bench(ctx):
        rng = random.Random(1)
        epochs = []
        for n in range(2):
            ctx.set(dut.enter, 1)
            epochs.append(ctx.get(dut.epoch))
            await ctx.tick()
            ctx.set(dut.enter, 0)
            if not n:
                ctx.set(dut.drain_start, 1)
                await ctx.tick()
                ctx.set(dut.drain_start, 0)
        assert epochs == [0, 1] and not ctx.get(dut.drain_done)
        for n, epoch in enumerate(epochs):
            for _ in range(20):
                await ctx.tick()
            done.append(ctx.get(dut.drain_done))
            fields = words(number=n, begins=1, ends=1, epoch=epoch)
            await offer(ctx, rng, dut.piece, copied=1, **fields)
            await take(ctx, rng, dut.job)
            await offer(ctx, rng, dut.checked, status=0)
            await take(ctx, rng, dut.effects)
            ctx.set(dut.released, 1)
            await ctx.tick()
            ctx.set(dut.released, 0)
            await take(ctx, rng, dut.copied)
        assert done == [0, 1]

    simulate(dut, bench)
