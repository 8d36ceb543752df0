"""Scheduler, requester and outstanding table with a peer that answers late, or never."""

import random
from collections import deque
from dataclasses import dataclass, replace

import pytest

from hdl.abi.enums import WcStatus, WrOpcode
from hdl.transport.recovery.go_back_n import GO_BACK_N
from tests.context.late import seed, slower
from tests.transport.send_side import CONFIG, run, wqe

MTU = 256
FIRST = 0xFFFFF0  # PSNs wrap


def packets(world, qp):
    return [job for job in world.jobs if job.header.dest_qp == 0x4000 + qp]


def psns(world):
    return [job.header.psn for job in world.jobs]


def test_a_pause_holds_up_what_the_qp_sends_again():
    """As after an RNR NAK: nothing before its end, whatever the driver posts meanwhile, and though
    a wake comes late of a WQE that ended before."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        await world.connect(ctx, 3)
        world.queues[2] = [wqe(length=3 * MTU), wqe(length=9)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 4)
        await ctx.tick().repeat(100)
        world.jobs.clear()
        await world.acknowledge(ctx, 2, psn=0x101, start=0x100, waiting=1)
        await world.restart(ctx, 2)
        world.queues[2].append(wqe(length=5))
        await world.ring(ctx, 2)
        world.queues[3] = [wqe(length=1)]
        await world.ring(ctx, 3)
        await ctx.tick().repeat(500)
        await world.wake(ctx, 2, psn=0x101, start=0x100, wake_generation=1, waiting=1)
        await ctx.tick().repeat(500)
        assert [job.header.dest_qp for job in world.jobs] == [0x4003], "the other QP only"
        world.jobs.clear()
        await world.wake(ctx, 2, psn=0x101, start=0x100, wake_generation=2)
        await world.until(ctx, lambda: len(world.jobs) == 4)
        await ctx.tick().repeat(200)
        assert psns(world) == [0x101, 0x102, 0x103, 0x104]

    run(scenario)


def test_a_qp_that_breaks_in_a_pause_is_flushed_to_its_end():
    """Its pause keeps nothing back any more: no wake would come for what is behind it."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(), wqe()]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        await ctx.tick().repeat(100)
        await world.acknowledge(ctx, 2, psn=0x100, start=0x100, waiting=1)
        await world.restart(ctx, 2)
        world.queues[2] += [wqe(), wqe()]
        await world.ring(ctx, 2)
        for ended in (1, 2):  # flushed
            row = {
                "psn": 0x100,
                "start": 0x100 + ended,
                "position": ended,
                "wake_generation": ended,
            }
            await world.pop(ctx, 2)
            await world.wake(ctx, 2, waiting=1, error=1, **row)
        for _ in range(2):
            await world.until(ctx, lambda: world.pokes)
            assert (await world.oldest(ctx, 2)).status == WcStatus.WR_FLUSH_ERR
            world.pokes.clear()
            await world.pop(ctx, 2)
        assert len(world.jobs) == 2, "nothing is sent"

    run(scenario)


def test_a_wqe_that_ends_meanwhile_is_not_sent_again():
    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=2 * MTU), wqe(length=9), wqe(length=7)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 4)
        await ctx.tick().repeat(100)
        world.jobs.clear()
        await world.acknowledge(ctx, 2, psn=0x100, start=0x100)
        await world.restart(ctx, 2)
        # Before the WQE has been fetched again.
        await world.acknowledge(ctx, 2, psn=0x103, start=0x103, position=2, wake_generation=2)
        await world.until(ctx, lambda: len(world.jobs) == 1)
        await ctx.tick().repeat(300)
        assert psns(world) == [0x103]

    run(scenario)


def test_a_message_on_its_way_goes_back_at_its_next_packet():
    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=40 * MTU)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.handed) == 10)
        await world.acknowledge(ctx, 2, psn=0x103, start=0x100)
        await world.restart(ctx, 2)
        sent = len(world.handed)
        assert sent <= 13
        await world.until(ctx, lambda: len(world.jobs) == sent + 37)
        await ctx.tick().repeat(200)
        assert psns(world)[sent:] == list(range(0x103, 0x128))
        assert [job.header.length for job in world.jobs[sent:]] == [MTU] * 37
        assert [job.offset for job in world.jobs[sent:]] == list(range(3 * MTU, 40 * MTU, MTU))
        assert [position for _, _, position in world.asked] == [0], "it is not fetched again"
        assert world.cycles[sent] - world.cycles[sent - 1] < 25
        assert world.lines == {job.line for job in world.jobs}, "its line is given back"

    run(scenario)


def test_a_message_on_its_way_goes_back_to_an_earlier_one():
    """The WQE at hand is no help then: both are fetched again, and its line is given back."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=6 * MTU), wqe(length=40 * MTU)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.handed) == 10)
        await world.acknowledge(ctx, 2, psn=0x103, start=0x100)
        await world.restart(ctx, 2)
        sent = len(world.handed)
        await world.until(ctx, lambda: len(world.jobs) == sent + 43)
        await ctx.tick().repeat(200)
        assert psns(world)[sent:] == list(range(0x103, 0x12E))
        assert {position for _, _, position in world.asked[2:]} == {0, 1}

    run(scenario)


def test_a_message_that_pauses_is_given_back():
    """After an RNR NAK it is fetched again behind the pause, though it had been at hand."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=40 * MTU)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.handed) == 10)
        await world.acknowledge(ctx, 2, psn=0x103, start=0x100, waiting=1)
        await world.restart(ctx, 2)
        sent = len(world.handed)
        await ctx.tick().repeat(500)
        assert len(world.handed) == sent, "nothing before its end"
        await world.wake(ctx, 2, psn=0x103, start=0x100, wake_generation=1)
        await world.until(ctx, lambda: len(world.jobs) == sent + 37)
        assert psns(world)[sent:] == list(range(0x103, 0x128))

    run(scenario)


def test_each_restart_begins_a_generation_of_the_qp():
    """What was handed over before can be told from what comes after; other QPs stay as they are."""

    async def scenario(ctx, world):
        for qp in (2, 3):
            await world.connect(ctx, qp)
            world.queues[qp] = [wqe(length=4 * MTU)]
        for generation in range(6):
            world.handed.clear()
            for qp in (2, 3):
                await world.ring(ctx, qp, len(world.queues[qp]))
            await world.until(ctx, lambda: len(world.handed) == 8)
            found = {(job.qp, job.generation, job.request) for job in world.handed}
            assert found == {(2, generation % 4, 1), (3, 0, 1)}
            await ctx.tick().repeat(100)
            world.queues[3].append(wqe(length=4 * MTU))
            await world.acknowledge(ctx, 2, psn=0x100, start=0x100)
            await world.restart(ctx, 2)

    run(scenario)


@pytest.mark.parametrize("first", range(1, 64, 21))
def test_it_goes_back_again_while_wqes_are_fetched_for_it(first):
    """Answers to what was asked for before the last restart come behind it."""

    async def scenario(ctx, world):
        for gap in range(first, first + 21, 3):
            qp = 1 + (gap - first) // 3
            await world.connect(ctx, qp)
            world.queues[qp] = [wqe(length=9) for _ in range(4)]
            await world.ring(ctx, qp)
            await world.until(ctx, lambda qp=qp: len(packets(world, qp)) == 4)
            await ctx.tick().repeat(150)
            world.jobs.clear()
            await world.acknowledge(ctx, qp, psn=0x100, start=0x100)
            await world.restart(ctx, qp)
            await ctx.tick().repeat(gap)
            await world.restart(ctx, qp)
            await world.until(ctx, lambda: world.jobs and psns(world)[-1] == 0x103)
            await ctx.tick().repeat(150)
            world.queues[qp].append(wqe(length=5))
            await world.ring(ctx, qp)
            await world.until(ctx, lambda: psns(world)[-1] == 0x104)
            await ctx.tick().repeat(50)
            for _ in range(5):
                await world.pop(ctx, qp)

    run(scenario)


@dataclass
class Wqe:
    """Where a posted WQE is: the first PSN and the one behind its last, from 0."""

    begin: int
    end: int
    read: bool


class Peer:
    """A peer, the network to it and the completer, for one QP; PSNs count from 0 and never wrap."""

    def __init__(self, world, qp, rng, bad):
        self.world, self.qp, self.rng, self.bad = world, qp, rng, bad
        self.wqes: list[Wqe] = []
        self.expected = 0  # by the peer
        self.acknowledged = 0  # the oldest PSN that is not
        self.position = self.reads = self.wakes = 0
        self.sent = 0  # the next PSN, unless the QP goes back
        # Where it may go on instead: a packet comes a while after its QP has gone back.
        self.places: deque[int] = deque(maxlen=64)
        self.quiet = 0

    def post(self, opcode, length):
        begin = self.wqes[-1].end if self.wqes else 0
        count = max(1, -(-length // MTU))
        self.wqes.append(Wqe(begin, begin + count, opcode == WrOpcode.RDMA_READ))
        self.world.queues[self.qp].append(wqe(opcode, length))

    def _at(self, psn):
        return next(one for one in self.wqes if one.begin <= psn < one.end)

    def take(self, job):
        """A packet is sent. Returns what the completer gets of it: upper end, or None."""
        near = min(self.places, default=self.sent)
        psn = near + ((job.header.psn - FIRST - near + (1 << 23)) % (1 << 24)) - (1 << 23)
        assert psn == self.sent or psn in self.places, (self.qp, psn, self.sent, self.places)
        one = self._at(psn)
        self.sent = one.end if one.read else psn + 1
        if self.rng.random() < self.bad:
            return None
        if psn > self.expected:
            return ("lost", self.expected)
        self.expected = max(self.expected, self.sent)
        if not one.read:
            return ("ack", self.expected)
        return ("data", psn, self.rng.randint(psn, one.end) if self.bad else one.end)

    async def answer(self, ctx, kind, *where):
        """The completer takes an answer; the QP goes back if it shows that something is lost."""
        first = next((w for w in self.wqes[self.position :] if w.read), None)
        before, again = self.acknowledged, kind == "lost"
        if kind == "data":
            begin, end = where
            again = begin > self.acknowledged
            if begin <= self.acknowledged and self._at(begin) is self._oldest():
                self.acknowledged = max(self.acknowledged, end)
        elif first is None or where[0] <= first.begin:
            self.acknowledged = max(self.acknowledged, where[0])
        else:
            self.acknowledged = max(self.acknowledged, first.begin)
            again = True
        ended = 0
        while (one := self._oldest()) and one.end <= self.acknowledged:
            entry = await self.world.oldest(ctx, self.qp)
            if entry is None or not entry.complete:
                self.acknowledged = max(before, one.begin)  # as if the answer had been lost
                break
            assert entry.head == (100 + self.position) & 0xFFFF
            await self.world.pop(ctx, self.qp)
            self.position, self.reads, ended = self.position + 1, self.reads + one.read, 1
        if self.acknowledged != before:
            self.places.append(self.origin())
            self.quiet = 0
        await self._write(ctx, ended)
        if again:
            await self.restart(ctx)

    async def _write(self, ctx, ended):
        self.wakes += ended
        one = self._oldest()
        begin = one.begin if one else self.acknowledged
        row = {
            "psn": (FIRST + self.acknowledged) % (1 << 24),
            "start": (FIRST + begin) % (1 << 24),
            "position": self.position,
            "reads": self.reads & 0xFF,
            "wake_generation": self.wakes & 0xFF,
        }
        await (self.world.wake if ended else self.world.acknowledge)(ctx, self.qp, **row)

    async def restart(self, ctx):
        self.quiet = 0
        if self.origin() not in self.places:
            self.places.append(self.origin())
        await self.world.restart(ctx, self.qp)

    def origin(self):
        """Where the QP sends from when it goes back."""
        return self.acknowledged

    def _oldest(self):
        return self.wqes[self.position] if self.position < len(self.wqes) else None


@dataclass
class Load:
    """What three QPs are given to do, and what becomes of it."""

    bad: float  # share of packets, and of answers, that are lost
    wqes: int = 16  # that each QP sends
    ring: int = 16  # that may be posted and not ended
    late: int = 0  # cycles that an answer takes at most, in the order in which they were given
    patience: int = 600  # cycles without progress after which a QP goes back
    told: bool = False  # doorbells carry the avail index
    least: int = 0  # bytes of a message
    longest: int = 2000
    deadline: int = 400_000  # cycles
    opcodes: tuple = (WrOpcode.SEND, WrOpcode.RDMA_READ)


LOADS = {f"lost{n}": Load(bad) for n, bad in enumerate((0.02, 0.1, 0.2))}
LOADS |= {
    f"late{n}": Load(bad, wqes=40, ring=8, late=late, patience=200, told=True, longest=6000)
    for n, (bad, late) in enumerate(((0, 400), (0.05, 600), (0, 900), (0.1, 300)))
}


@pytest.mark.parametrize("name", LOADS)
def test_everything_is_sent_whatever_is_lost(name):
    """Random WQEs of three QPs; packets and answers are lost or late, time runs out at any moment.

    Answers that come after their QP has gone back move it on past what it was going to send again,
    and the driver then uses those places of the ring again."""
    play(name, LOADS[name])


def play(name: str, load: Load, peer_class: type[Peer] = Peer, recovery=GO_BACK_N) -> None:
    """Give three QPs a load, whose peers know where a QP goes back to, and see it end."""
    rng = random.Random(name)
    # Late rows take many cycles of simulation, and nobody's time runs out before they are here.
    wqes, bad, patience = load.wqes, load.bad, load.patience
    if seed():
        wqes, patience = wqes // 4, patience * slower()

    async def scenario(ctx, world):
        answers = deque()
        cycle = 0
        peers = {qp: peer_class(world, qp, rng, bad) for qp in (1, 2, 3)}
        for qp, peer in peers.items():
            await world.connect(ctx, qp, psn=FIRST)
            await peer._write(ctx, 0)
        seen = 0
        while not all(peer.position == wqes for peer in peers.values()):
            cycle += 1
            for qp, peer in peers.items():
                room = min(wqes, peer.position + load.ring) - len(peer.wqes)
                if room and rng.random() < 0.02:
                    for _ in range(min(rng.randint(1, 6), room)):
                        opcode = rng.choice(load.opcodes)
                        least = rng.choice([0, 7, MTU, 3 * MTU, rng.randrange(load.longest)])
                        peer.post(opcode, max(load.least, least))
                    await world.ring(ctx, qp, len(peer.wqes) if load.told else None)
                peer.quiet += 1
                if peer._oldest() and peer.quiet > patience:
                    await peer.restart(ctx)
            while seen < len(world.jobs):
                job, seen = world.jobs[seen], seen + 1
                peer = peers[job.header.dest_qp - 0x4000]
                found = peer.take(job)
                if found and rng.random() >= bad:
                    due = max(cycle, answers[-1][0] if answers else 0)
                    answers.append((max(due, cycle + rng.randint(0, load.late)), peer, found))
            while answers and answers[0][0] <= cycle:
                _, peer, found = answers.popleft()
                await peer.answer(ctx, *found)
            await ctx.tick()
        await ctx.tick().repeat(300)
        for qp in peers:
            assert await world.oldest(ctx, qp) is None

    config = CONFIG
    if load.told:  # WQEs are fetched far ahead
        config = replace(CONFIG, queue_size=load.ring, send_lines=16, outstanding=32)
    run(scenario, deadline=load.deadline, config=config, recovery=recovery)
