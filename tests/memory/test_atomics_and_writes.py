"""The memory box with WRITEs, atomics, ATOMIC WRITEs and FLUSHes mixed: words, results and replies
as if one by one."""

import random
from dataclasses import dataclass, replace

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
PLACEMENT = replace(CONFIG, placement=True)
#: Job of a FLUSH, in ``num_sge``: for visibility, for persistence; of the whole region.
VISIBLE, PERSISTENT, WHOLE = 1, 2, 4


@dataclass
class Packet:
    """A WRITE of ``value``, or what the unit of atomics does (``request``) for a ``kind``, on the
    word at ``addr``."""

    qp: int
    addr: int
    bad: bool
    discard: bool
    value: int = 0
    request: dict | None = None
    kind: ScatterKind = ScatterKind.KEY
    flush: int = VISIBLE


def placed(rng, number, packet):
    """Make the packet an ATOMIC WRITE or a FLUSH; None, or what the former writes."""
    request = {"compares": 0, "swap_add": 0, "compare": 0, "resource": number}
    if rng.random() < 0.5:
        packet.kind, packet.request = ScatterKind.FLUSH, request
        return None
    packet.kind, packet.value = ScatterKind.ATOMIC_WRITE, rng.getrandbits(64)
    packet.request = request | {"swap_add": packet.value}
    return packet.value


def traffic(rng, count, *, shared, placement=False):
    """Packets, the first words, the words behind them all, and what each atomic may find.

    ``shared``: QPs share words, and WRITEs go to others; else each QP has one word for both. A
    FLUSH finds what its QP has made of the word, or what became of that; an ATOMIC WRITE looks at
    nothing and finds 0."""
    first = {8 * n: rng.getrandbits(64) for n in range(4)}
    words, packets, found = dict(first), [], {}
    log = {addr: [(None, value)] for addr, value in first.items()}  # who has made what of a word
    flushes = {}
    for number in range(count):
        qp, bad, discard = rng.randrange(3), rng.random() < 0.1, rng.random() < 0.1
        addr = 8 * rng.randrange(4) if shared else 8 * qp
        packet = Packet(qp, addr, bad, discard and not bad)
        packets.append(packet)
        happens = not bad and not discard
        if placement and rng.random() < 0.4:
            value = placed(rng, number, packet)
            if happens and value is not None:
                words[addr], found[number] = value, [0]
            elif happens:
                mine = [at for at, (who, _) in enumerate(log[addr]) if who == qp]
                flushes[number] = addr, mine[-1] if mine else 0
        elif rng.random() < 0.6:
            packet.kind = ScatterKind.ATOMIC
            operand = rng.choice((1, rng.getrandbits(64)))
            request = {"compares": rng.randrange(2), "swap_add": operand, "resource": number}
            packet.request = request | {"compare": rng.choice((words[addr], 5))}
            if happens:
                old = words[addr]
                found[number] = [old]
                if not request["compares"]:
                    words[addr] = (old + operand) % WORD
                elif old == packet.request["compare"]:
                    words[addr] = operand
        else:
            packet.value = rng.getrandbits(64)
            packet.addr = 8 * (10 + qp) if shared else addr
            if happens:
                words[packet.addr] = packet.value
        if happens and packet.addr in log and packet.kind != ScatterKind.FLUSH:
            log[packet.addr].append((qp, words[packet.addr]))
    for number, (addr, begin) in flushes.items():
        found[number] = [value for _, value in log[addr][begin:]]
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
            job = place | {"kind": packet.kind, "va": packet.addr}
            if packet.kind == ScatterKind.FLUSH:
                job |= {"num_sge": packet.flush, "length": 0}
            if packet.request:
                ctx.set(rx.atomic.payload, packet.request)
                ctx.set(rx.atomic.valid, 1)
                await ctx.tick()
                ctx.set(rx.atomic.valid, 0)
            key = BAD_KEY if packet.bad else KEY
            await self._offer(ctx, rx.job, job | {"key": key})

    async def payload(self, ctx):
        for packet in self.packets:
            if packet.kind in (ScatterKind.KEY, ScatterKind.ATOMIC_WRITE):
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
        good |= {"flush": {"visible": 1, "persistent": 0}}
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


def play(config, packets, first, latency, rng):
    """Give the packets to a memory box; what is around it, when all have been answered."""
    around = Surroundings(Memory(config=config), packets, first, latency, rng)

    async def until_the_end(ctx):
        while len(around.replies) < len(packets):
            await ctx.tick()
        await ctx.tick().repeat(30)

    background = (around.jobs, around.payload, around.effects, around.regions, around.host)
    simulate(around.dut, until_the_end, background=background)
    return around


@pytest.mark.parametrize("config", [CONFIG, PLACEMENT], ids=["atomics", "placement"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("latency", [1, 60])
def test_as_if_one_after_the_other(shared, latency, config):
    rng = random.Random(f"{shared}-{latency}")
    placement = config.placement
    packets, first, words, found = traffic(rng, 150, shared=shared, placement=placement)
    around = play(config, packets, first, latency, rng)
    assert around.statuses == [REM_ACCESS_ERR if packet.bad else 0 for packet in packets]
    assert around.results.keys() == found.keys()
    for number, values in found.items():
        assert around.results[number] in values, (number, packets[number])
    assert around.words == first | words
    for number, before in enumerate(around.replies):
        assert before.issuperset(one for one in found if one <= number), "a reply before its result"


def test_nobody_waits_for_a_flush():
    """Forty WRITEs with a FLUSH behind each, of one QP: as long as one read of the host or two, and
    each FLUSH reads what its WRITE has written, or the next ones."""
    latency, packets = 200, []
    for number in range(40):
        packets.append(Packet(0, 0, False, False, 1000 + number))
        packets.append(Packet(0, 0, False, False, kind=ScatterKind.FLUSH))
        packets[-1].request = {"compares": 0, "swap_add": 0, "compare": 0, "resource": number}
    around = play(PLACEMENT, packets, {0: 5}, latency, random.Random(1))
    assert all(around.results[number] >= 1000 + number for number in range(40))
    assert around.words[0] == 1039
    assert around.cycle < 5 * latency


def test_a_flush_waits_for_words_of_its_qp():
    """What atomics and ATOMIC WRITEs make of a word is written before a FLUSH behind them reads."""
    packets = []
    for number in range(0, 30, 3):
        store = Packet(1, 0, False, False, 500 + number, kind=ScatterKind.ATOMIC_WRITE)
        add = Packet(1, 0, False, False, kind=ScatterKind.ATOMIC)
        flush = Packet(1, 0, False, False, kind=ScatterKind.FLUSH)
        for at, (packet, value) in enumerate(((store, 500 + number), (add, 1), (flush, 0))):
            request = {"compares": 0, "swap_add": value, "compare": 0, "resource": number + at}
            packet.request = request
            packets.append(packet)
    around = play(PLACEMENT, packets, {0: 5}, 30, random.Random(2))
    for number in range(0, 30, 3):
        assert around.results[number + 1] == 500 + number
        # The next ATOMIC WRITE does not wait for the FLUSH.
        later = [value for n in range(number, 30, 3) for value in (500 + n, 501 + n)]
        assert around.results[number + 2] in later[1:], number


def test_rights_of_a_flush():
    """The region may be flushed for visibility and not for persistence, and as it has the addresses
    of the bus, only a range of it: else 62h, and nothing is read."""
    packets = []
    for number, asked in enumerate((VISIBLE, PERSISTENT, VISIBLE | PERSISTENT, VISIBLE | WHOLE)):
        request = {"compares": 0, "swap_add": 0, "compare": 0, "resource": number}
        packets.append(Packet(1, 8, False, False, 0, request, ScatterKind.FLUSH, asked))
    around = play(PLACEMENT, packets, {0: 5, 8: 6}, 30, random.Random(3))
    assert around.statuses == [0, *[REM_ACCESS_ERR] * 3]
    assert around.results == {0: 6}
