"""The memory box with WRITEs and atomics mixed: words, results and replies as if one by one."""

import random
from dataclasses import dataclass

import pytest

from hdl.config import NicConfig
from hdl.memory.memory import Memory
from hdl.ports.jobs import ScatterKind
from hdl.ports.rows import MrType
from tests.simulate import simulate

WORD = 1 << 64
KEY, BAD_KEY = 0x101, 0x201
REM_ACCESS_ERR = 10
CONFIG = NicConfig(width=64, mrs=16, translation_lines=8, gather_bytes=8192)


@dataclass
class Packet:
    """A WRITE of ``value``, or an atomic (``request``), on the word at ``addr``."""

    qp: int
    addr: int
    bad: bool
    discard: bool
    value: int = 0
    request: dict | None = None


def traffic(rng, count, *, shared):
    """Packets, the first words, the words behind them all, and what each atomic finds.

    ``shared``: QPs share words, and WRITEs go to others; else each QP has one word for both."""
    first = {8 * n: rng.getrandbits(64) for n in range(4)}
    words, packets, found = dict(first), [], {}
    for number in range(count):
        qp, bad, discard = rng.randrange(3), rng.random() < 0.1, rng.random() < 0.1
        addr = 8 * rng.randrange(4) if shared else 8 * qp
        packet = Packet(qp, addr, bad, discard and not bad)
        packets.append(packet)
        happens = not bad and not discard
        if rng.random() < 0.6:
            operand = rng.choice((1, rng.getrandbits(64)))
            request = {"compares": rng.randrange(2), "swap_add": operand, "resource": number}
            packet.request = request | {"compare": rng.choice((words[addr], 5))}
            if happens:
                old = found[number] = words[addr]
                if not request["compares"]:
                    words[addr] = (old + operand) % WORD
                elif old == packet.request["compare"]:
                    words[addr] = operand
        else:
            packet.value = rng.getrandbits(64)
            packet.addr = 8 * (10 + qp) if shared else addr
            if happens:
                words[packet.addr] = packet.value
    return packets, first, words, found


class Surroundings:
    """Host memory, the transport and ingress around a memory box."""

    def __init__(self, dut, packets, words, latency, rng):
        self.dut, self.packets, self.words, self.rng = dut, packets, dict(words), rng
        self.latency, self.cycle = latency, 0
        self.answers, self.results, self.statuses, self.replies = [], {}, [], []

    async def _offer(self, ctx, port, payload):
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def jobs(self, ctx):
        rx, place = self.dut.rx, {"function": 1, "pd": 7, "length": 8, "offset": 8}
        for packet in self.packets:
            kind = ScatterKind.ATOMIC if packet.request else ScatterKind.KEY
            if packet.request:
                ctx.set(rx.atomic.payload, packet.request)
                ctx.set(rx.atomic.valid, 1)
                await ctx.tick()
                ctx.set(rx.atomic.valid, 0)
            key = BAD_KEY if packet.bad else KEY
            await self._offer(ctx, rx.job, place | {"kind": kind, "va": packet.addr, "key": key})

    async def payload(self, ctx):
        for packet in self.packets:
            if not packet.request:
                beat = {"data": packet.value, "keep": 0xFF, "first": 1, "last": 1}
                await self._offer(ctx, self.dut.received, beat)

    async def effects(self, ctx):
        ctx.set(self.dut.rx.checked.ready, 1)
        for number, packet in enumerate(self.packets):
            while len(self.statuses) <= number:
                await ctx.tick()
            effects = {"discard": packet.discard, "reply": 1, "qp": packet.qp}
            await self._offer(ctx, self.dut.rx.effects, effects | {"flags": {"read": 1}})

    async def regions(self, ctx):
        good = {"type": MrType.DMA, "function": 1, "pd": 7, "tag": 1, "access": 15}
        port = self.dut.tables.scatter
        while True:
            *_, index = await ctx.tick().sample(port.index)
            ctx.set(
                port.row, good | {"va": 0, "length": (1 << 47) - 1} if index == KEY >> 8 else {}
            )

    async def host(self, ctx):
        """Reads give what was there when they were accepted: no later write helps."""
        host, reply, rx = self.dut.host, self.dut.reply, self.dut.rx
        reads, writes, scatter = host.atomic_reads, host.atomic_writes.beat, host.scatter.beat
        ctx.set(reads.req.ready, 1)
        while True:
            for port in (writes, scatter, reply):
                ctx.set(port.ready, self.rng.random() < 0.7)
            due = bool(self.answers) and self.answers[0][0] <= self.cycle
            ctx.set(reads.rsp.valid, due)
            if due:
                ctx.set(reads.rsp.payload, {"data": self.answers.pop(0)[1], "last": 1})
            (
                *_,
                asked,
                read,
                wrote,
                write,
                placed,
                beat,
                kept,
                place,
                row,
                said,
                checked,
                status,
            ) = await ctx.tick().sample(
                *(reads.req.valid, reads.req.payload),
                *(writes.valid & writes.ready, writes.payload),
                *(scatter.valid & scatter.ready, scatter.payload),
                *(rx.result.enable, rx.result.index, rx.result.row),
                reply.valid & reply.ready,
                *(rx.checked.valid, rx.checked.payload.status),
            )
            self.cycle += 1
            if asked:
                self.answers.append((self.cycle + self.latency, self.words[read.addr]))
            if placed:
                self.words[beat.addr] = beat.data
            if wrote:
                self.words[write.addr] = write.data
            if kept:
                self.results[place] = row.value
            if said:
                self.replies.append(set(self.results))
            if checked:
                self.statuses.append(status)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("latency", [1, 60])
def test_as_if_one_after_the_other(shared, latency):
    rng = random.Random(f"{shared}-{latency}")
    packets, first, words, found = traffic(rng, 150, shared=shared)
    around = Surroundings(Memory(config=CONFIG), packets, first, latency, rng)

    async def until_the_end(ctx):
        while len(around.replies) < len(packets):
            await ctx.tick()
        await ctx.tick().repeat(30)

    background = (around.jobs, around.payload, around.effects, around.regions, around.host)
    simulate(around.dut, until_the_end, background=background)
    assert around.statuses == [REM_ACCESS_ERR if packet.bad else 0 for packet in packets]
    assert around.results == found
    assert around.words == first | words
    for number, before in enumerate(around.replies):
        assert before.issuperset(one for one in found if one <= number), "a reply before its result"
