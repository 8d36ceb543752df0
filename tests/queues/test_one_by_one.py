"""Engines of a card that reads one WQE at a time, in Amaranth's simulator."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from itertools import pairwise

import pytest
from amaranth.hdl import Fragment

from hdl.config import FUNCTION_RDMA
from hdl.ports.host import ReadRequest, write_beat
from hdl.ports.jobs import RecvFetched, SendFetched
from hdl.ports.rows import QueueRow
from hdl.queues.completion.engine import CompletionEngine
from hdl.queues.receive.fetch import RecvFetch
from hdl.queues.send import SendFetch
from tests.fields import pack, unpack
from tests.queues import wqes
from tests.queues.completion_bench import CQE, cqe_bytes
from tests.queues.host import Memory, Queue
from tests.queues.top import small_config
from tests.simulate import simulate

CONFIG = replace(small_config(64, ahead=1), packets_ahead=1)
LATENCY = 7
DEADLINE = 60_000


class Host:
    """Memory behind an engine's read client, and the rows of its queues. ``rules``: of a queue,
    beside that it may have indirect tables."""

    def __init__(self, dut):
        self.dut, self.memory, self.queues, self.rules = dut, Memory(), {}, {}

    def queue(self, number: int, size: int, **rules: int) -> Queue:
        self.queues[number] = Queue(self.memory, number, size)
        self.rules[number] = {"indirect": 1} | rules
        return self.queues[number]

    async def serve(self, ctx):
        dut, client, flying = self.dut, self.dut.read_client, deque()
        now = 0
        ctx.set(client.req.ready, 1)
        ctx.set(dut.write_client.beat.ready, 1)
        watched = (client.req.valid, client.req.payload.as_value())
        watched += (dut.queue_read.enable, dut.queue_read.index)
        written = dut.write_client.beat
        watched += (written.valid, written.payload.as_value())
        place = 0
        while True:
            beat = flying[0][1].popleft() if flying and flying[0][0] <= now else None
            ctx.set(client.rsp.valid, beat is not None)
            if beat is not None:
                ctx.set(client.rsp.payload, beat)
                if not flying[0][1]:
                    flying.popleft()
            _, _, asks, request, looks, index, writes, beat = await ctx.tick().sample(*watched)
            now += 1
            if writes:
                beat = unpack(write_beat(CONFIG.width), beat)
                place = beat["addr"] if beat["first"] else place
                count = beat["keep"].bit_count()
                self.memory.write(place, beat["data"].to_bytes(8, "little")[:count], 0)
                place += count
            if asks:
                asked = unpack(ReadRequest, request)
                data, failed = self.memory.read(asked["addr"], asked["length"])
                assert not failed, asked
                parts = [data[at : at + 8] for at in range(0, len(data), 8)]
                beats = deque(
                    {
                        "data": int.from_bytes(part, "little"),
                        "keep": (1 << len(part)) - 1,
                        "first": n == 0,
                        "last": n == len(parts) - 1,
                    }
                    for n, part in enumerate(parts)
                )
                flying.append((now + LATENCY, beats))
            if looks:
                queue = self.queues.get(index)
                row = queue.row | {"rules": self.rules[index]} if queue else {}
                ctx.set(dut.queue_read.row.as_value(), pack(QueueRow, row))


def offer(queue: Queue, data: bytes, rng: random.Random) -> int:
    """Offer an element, in one buffer or in several; returns its head."""
    cuts = sorted(rng.sample(range(1, len(data)), rng.choice([0, 0, 1, 2])))
    buffers = []
    for start, stop in pairwise([0, *cuts, len(data)]):
        addr = queue.memory.alloc(stop - start)
        queue.memory.put(addr, data[start:stop])
        buffers.append((addr, stop - start, False))
    head = queue.chain(buffers)
    queue.offer(head)
    return head


async def answer(ctx, dut, request: dict | None, shape) -> dict:
    """Make a request of an engine, or the one that is set already; returns its answer."""
    if request is not None:
        ctx.set(dut.req.payload, request)
    ctx.set(dut.req.valid, 1)
    await ctx.tick().until(dut.req.ready)
    ctx.set(dut.req.valid, 0)
    ctx.set(dut.rsp.ready, 1)
    while not ctx.get(dut.rsp.valid):
        await ctx.tick()
    found = unpack(shape, ctx.get(dut.rsp.payload.as_value()))
    await ctx.tick()
    ctx.set(dut.rsp.ready, 0)
    return found


async def slots(ctx, dut, line: int, count: int) -> bytes:
    """``count`` bytes of a line."""
    out = b""
    for slot in range(-(-count // 16)):
        ctx.set(dut.slot, {"line": line, "slot": slot})
        ctx.set(dut.slot_enable, 1)
        await ctx.tick()
        ctx.set(dut.slot_enable, 0)
        out += ctx.get(dut.slot_data).to_bytes(16, "little")
    return out[:count]


@pytest.mark.parametrize("seed", range(2))
def test_send(seed):
    """WQEs of two queues, each found and decoded, with all of its SGEs; the index is read first."""
    dut, rng = SendFetch(config=CONFIG), random.Random(seed)
    host = Host(dut)
    queues = {qp: host.queue(CONFIG.sq_queue(qp), 4) for qp in (1, 3)}

    async def bench(ctx):
        for n in range(12):
            qp, queue = rng.choice(list(queues.items()))
            sges = wqes.random_sges(rng, rng.randrange(4))
            data, expected = wqes.send_wqe(rng, sges)
            position = queue.avail
            head = offer(queue, data, rng)
            request = {"function": FUNCTION_RDMA, "qp": qp, "queue": queue.number}
            request |= {"position": position}
            empty = await answer(ctx, dut, request | {"known": position}, SendFetched)
            assert (empty["status"], empty["available"]) == (wqes.EMPTY, queue.avail)
            found = await answer(ctx, dut, request | {"known": queue.avail}, SendFetched)
            assert (found["status"], found["qp"], found["head"]) == (wqes.OK, qp, head), n
            wqe = {name: found["wqe"][name] for name in expected if name != "operation"}
            assert wqe == {name: expected[name] for name in wqe}
            assert await slots(ctx, dut, found["line"], 16 * len(sges)) == wqes.sge_bytes(sges)
            ctx.set(dut.release.payload, found["line"])
            ctx.set(dut.release.valid, 1)
            await ctx.tick().until(dut.release.ready)
            ctx.set(dut.release.valid, 0)
            queue.spare = [k for k in range(4) if k != head] + [head]

    simulate(dut, bench, deadline=DEADLINE, background=[host.serve])


@pytest.mark.parametrize("seed", range(2))
def test_receive(seed):
    """Receive WQEs of two queues in their order, whatever doorbells say; an empty one is EMPTY."""
    dut, rng = RecvFetch(config=CONFIG), random.Random(seed)
    host = Host(dut)
    queues = {qp: host.queue(CONFIG.rq_queue(qp), 16) for qp in (1, 3)}

    async def bench(ctx):
        await ctx.tick().repeat(CONFIG.recv_lines)
        ctx.set(dut.doorbell.valid, 1)
        for n in range(12):
            qp, queue = rng.choice(list(queues.items()))
            request = {"function": FUNCTION_RDMA, "qp": qp, "last": 1}
            request |= {"source": {"kind": 0, "number": qp}}
            empty = await answer(ctx, dut, request, RecvFetched)
            assert empty["status"] == wqes.EMPTY, n
            waiting = []
            for _ in range(rng.randrange(1, 4)):
                sges = wqes.random_sges(rng, rng.randrange(1, 4))
                data, expected = wqes.recv_wqe(rng, sges)
                waiting.append((offer(queue, data, rng), sges, expected))
                ctx.set(dut.doorbell.payload, {"qp": qp, "flags": 1})
            for head, sges, expected in waiting:
                found = await answer(ctx, dut, request, RecvFetched)
                assert (found["status"], found["head"]) == (wqes.OK, head), n
                assert (found["queue"], found["wqe"]) == (queue.number, expected)
                assert await slots(ctx, dut, found["line"], 16 * len(sges)) == wqes.sge_bytes(sges)
            queue.spare = list(range(16))

    simulate(dut, bench, deadline=DEADLINE, background=[host.serve])


@pytest.mark.parametrize("seed", range(2))
def test_completions(seed):
    """CQEs in the buffers of two CQs, in their order, whatever these are made of; and no CQE more
    than a CQ has buffers."""
    dut, rng = CompletionEngine(config=CONFIG), random.Random(seed)
    host = Host(dut)
    cqs = [host.queue(1 + n, 16) for n in range(2)]
    memory = host.memory

    async def complete(ctx, cq: int) -> dict:
        completion = {"emit": 1, "cq": cq, "opcode": 128, "function": FUNCTION_RDMA}
        completion |= {"wr_id": rng.getrandbits(64), "byte_len": rng.getrandbits(32)}
        ctx.set(dut.i.payload, completion)
        ctx.set(dut.i.valid, 1)
        await ctx.tick().until(dut.i.ready)
        ctx.set(dut.i.valid, 0)
        return completion

    async def bench(ctx):
        ctx.set(dut.error.ready, 1)
        wanted, lists = [], [[], []]
        for _ in range(14):
            cq = rng.randrange(2)
            first = rng.choice([CQE, CQE + 9, 5])
            parts = [(memory.alloc(n), n) for n in ((first,) if first >= CQE else (first, CQE))]
            head = cqs[cq].chain([(addr, n, True) for addr, n in parts])
            cqs[cq].offer(head)
            lists[cq].append(head)
            wanted.append((parts, await complete(ctx, cq)))
        for _ in range(2000):
            await ctx.tick()
        fields = ("status", "vendor_error", "imm", "qp_num", "src_qp", "flags", "pkey_index", "sl")
        for parts, completion in wanted:
            found = b"".join(memory.get(addr, n) for addr, n in parts)[:CQE]
            assert found == cqe_bytes(dict.fromkeys(fields, 0) | completion)
        for queue, heads in zip(cqs, lists, strict=True):
            assert memory.get(queue.device + 2, 2) == len(heads).to_bytes(2, "little")
            for n, head in enumerate(heads):
                assert memory.get(queue.device + 4 + 8 * n, 4) == head.to_bytes(4, "little")
        await complete(ctx, 0)
        await ctx.tick().until(dut.cq_error.valid)
        assert ctx.get(dut.completions) == len(wanted) and ctx.get(dut.cq_error.payload.cq) == 0

    simulate(dut, bench, deadline=DEADLINE, background=[host.serve])


@pytest.mark.parametrize("ahead", [1, 2, 4, 64])
def test_engines_elaborate_at_each_limit(ahead):
    """Where a card reads few WQEs at a time, its engines have parts for as many as these need."""
    for engine in (SendFetch, RecvFetch):
        Fragment.get(engine(config=small_config(64, ahead=ahead)), None)
