"""Replier: order of READs, ACKs and NAKs, and what each packet says."""

import random
from functools import cache

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from hdl.context.table import Table
from hdl.ports.jobs import TxSource
from hdl.ports.rows import QpState, ReadResource
from hdl.transport.reply.replier import Replier
from hdl.wire.opcodes import Operation
from tests.context.late import Window, context_of, seed, slower
from tests.simulate import Prepared, simulate
from tests.transport.send_side import CONFIG, gather_model

MTU = 256
ACK, NAK, READ, REPLAY = 1, 2, 4, 8


class ReplySide(Elaboratable):
    def __init__(self, late=0):
        self.replier = Replier(config=CONFIG)
        self.context = context_of(CONFIG, late)
        self.cfg, self.rx, self.reply = (
            Window(self.context, f"qp_{name}") for name in ("cfg", "rx", "reply")
        )
        self.pool = Table(row=ReadResource, depth=64, index_width=16)

    def elaborate(self, platform):
        m = Module()
        for name in ("replier", "context", "pool"):
            setattr(m.submodules, name, getattr(self, name))
        r = self.replier
        wiring.connect(m, r.context, self.context.replier)
        wiring.connect(m, r.row_write, self.reply.write)
        wiring.connect(m, r.resource, self.pool.read0)
        return m


@cache
def reply_side(late: int) -> Prepared:
    """The ``ReplySide`` of all scenarios with this back end."""
    return Prepared(ReplySide(late))


class World:
    silent = True

    def __init__(self):
        self.dut, self.jobs, self.refuse = reply_side(seed()).component, [], None
        self.handed, self.cycles = [], []
        self.delay, self.most = 8, 8  # of the gather

    async def gather(self, ctx):
        await gather_model(ctx, self.dut.replier, self)

    async def accept(self, ctx, place, **resource):
        """A READ, an atomic or another request that the responder has put into the pool."""
        single = resource["length"] <= MTU
        await self.program(ctx, self.dut.pool, place, **resource, single=single)

    async def program(self, ctx, table, index, **row):
        while not ctx.get(table.ready):
            await ctx.tick()
        ctx.set(table.program.index, index)
        ctx.set(table.program.row, row)
        ctx.set(table.program.write, 1)
        await ctx.tick().until(table.program.done)
        ctx.set(table.program.write, 0)

    async def connect(self, ctx, qp, **cfg):
        defaults = {"state": QpState.RTR, "path_mtu": 1, "max_dest_rd_atomic": 4, "pkey": 0xFFFF}
        row = defaults | {"read_base": 8 * qp, "dest_qpn": 0x100 + qp} | cfg
        await self.program(ctx, self.dut.cfg, qp, **row)

    async def activate(self, ctx, qp, flags):
        port = self.dut.replier.activate
        ctx.set(port.payload, {"qp": qp, "flags": flags})
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def until(self, ctx, count):
        for _ in range(3000):
            if len(self.jobs) >= count:
                break
            await ctx.tick()
        await ctx.tick().repeat(100)
        assert len(self.jobs) == count

    def said(self):
        fields = ("opcode", "psn", "msn", "syndrome", "length")
        return [tuple(getattr(j.header, f) for f in fields) for j in self.jobs]


def run(scenario):
    world = World()

    async def bench(ctx):
        await scenario(ctx, world)

    simulate(reply_side(seed()), bench, deadline=20_000, background=(world.gather,))


def test_acks_merge_into_the_newest():
    async def scenario(ctx, w):
        for qp in (1, 2):
            await w.connect(ctx, qp)
            await w.program(ctx, w.dut.rx, qp, psn=0, ack_psn=0xFFFFFF, msn=qp, ack_msn=qp)
        for qp in (1, 2, 1, 1):
            await w.activate(ctx, qp, ACK)
        await ctx.tick().repeat(300)
        assert set(w.said()) == {
            (Operation.ACKNOWLEDGE, 0xFFFFFF, 1, 0x1F, 0),
            (Operation.ACKNOWLEDGE, 0xFFFFFF, 2, 0x1F, 0),
        }
        assert 2 <= len(w.jobs) <= 4

    run(scenario)


@pytest.mark.parametrize("length", [0, 1, MTU, MTU + 1, 3 * MTU, 11 * MTU + 5])
def test_read_response_then_ack(length):
    """The ACK is for the request in front of the READ: only its responses acknowledge a READ."""

    async def scenario(ctx, w):
        await w.connect(ctx, 3)
        resource = {"va": 0x7000, "rkey": 9, "length": length, "psn": 0xFFFFFF, "msn": 5}
        await w.accept(ctx, 24, **resource)
        count = max(1, -(-length // MTU))
        await w.program(
            ctx, w.dut.rx, 3, psn=count, ack_psn=0xFFFFFE, msn=6, ack_msn=5, read_tail=1
        )
        await w.activate(ctx, 3, READ | ACK)
        await w.until(ctx, count + 1)
        said = w.said()
        assert [s[1] for s in said[:-1]] == [(0xFFFFFF + n) & 0xFFFFFF for n in range(count)]
        assert all(s[2] == 5 for s in said[:-1])
        assert sum(s[4] for s in said) == length
        assert [j.va for j in w.jobs[:-1]] == [0x7000 + n * MTU for n in range(count)]
        assert {(j.key, j.qp) for j in w.jobs[:-1]} == {(9, 3)}  # whose window it may be
        middle = [Operation.READ_RESP_MIDDLE] * (count - 2)
        want = [Operation.READ_RESP_FIRST, *middle, Operation.READ_RESP_LAST]
        assert [s[0] for s in said[:-1]] == (want if count > 1 else [Operation.READ_RESP_ONLY])
        assert said[-1] == (Operation.ACKNOWLEDGE, 0xFFFFFE, 5, 0x1F, 0)

    run(scenario)


@pytest.mark.parametrize("failed", [0, 1])
def test_atomics_are_answered_among_reads(failed):
    """With what they have found, or with NAK 63h; a second time as well, with the MSN of now."""

    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        for n, atomic in enumerate((0, 1, 0)):
            resource = {"va": 0x70, "rkey": 9, "length": 8, "psn": 10 + n, "msn": 1 + n}
            await w.accept(ctx, 8 + n, **resource, atomic=atomic, number=n)
        result = w.dut.replier.result
        ctx.set(result.index, 9)
        ctx.set(result.row, {"value": 0x1122334455667788, "failed": failed})
        ctx.set(result.enable, 1)
        await ctx.tick()
        ctx.set(result.enable, 0)
        await w.program(ctx, w.dut.rx, 1, psn=13, msn=3, read_tail=3)
        await w.activate(ctx, 1, READ)
        await w.until(ctx, 3)
        answer = (Operation.ATOMIC_ACK, 11, 2, 0x1F, 0)
        if failed:
            answer = (Operation.ACKNOWLEDGE, 11, 2, 0x63, 0)
        read = Operation.READ_RESP_ONLY
        assert w.said() == [(read, 10, 1, 0x1F, 8), answer, (read, 12, 3, 0x1F, 8)]
        assert w.jobs[1].source == TxSource.NONE
        assert failed or w.jobs[1].header.va == 0x1122334455667788
        await w.program(
            ctx, w.dut.rx, 1, psn=17, msn=7, read_tail=3, replay=1, replay_skip=0, replay_seq=1
        )
        await w.activate(ctx, 1, REPLAY | READ)
        await w.until(ctx, 5)
        again = (*answer[:2], 7, *answer[3:])
        assert w.said()[3:] == [again, (read, 12, 7, 0x1F, 8)]

    run(scenario)


@pytest.mark.parametrize("together", [0, 1])
def test_an_atomic_is_answered_when_it_has_been_executed(together):
    """A READ behind it waits, and one that has not landed; other QPs do not; ``together``: another
    atomic begins in the cycle in which it ends."""

    async def land(ctx, w, place):
        ctx.set(w.dut.replier.landed.payload, place)
        ctx.set(w.dut.replier.landed.valid, 1)
        await ctx.tick()
        ctx.set(w.dut.replier.landed.valid, 0)
        ctx.set(w.dut.replier.saved, 0)
        await ctx.tick()

    async def save(ctx, w, place):
        ctx.set(w.dut.replier.saved_at, place)
        ctx.set(w.dut.replier.saved, 1)
        await ctx.tick()
        ctx.set(w.dut.replier.saved, 0)
        await ctx.tick()

    async def scenario(ctx, w):
        for qp in (1, 2):
            await w.connect(ctx, qp)
            for n in range(2):
                row = {"va": 0x70, "rkey": 9, "length": 8, "psn": 10 + n, "msn": 1 + n}
                atomic = int(qp == 1 and n == 0)
                await w.accept(ctx, 8 * qp + n, **row, atomic=atomic, number=n)
            await w.program(ctx, w.dut.rx, qp, psn=12, msn=2, read_tail=2)
        await save(ctx, w, 17)  # dropped: a READ takes its place
        await save(ctx, w, 17)
        await save(ctx, w, 8)
        for qp in (1, 2):
            await w.activate(ctx, qp, READ)
        await w.until(ctx, 1)
        await ctx.tick().repeat(200)
        assert [job.header.dest_qp for job in w.jobs] == [0x102]
        await land(ctx, w, 17)
        await w.until(ctx, 2)
        await ctx.tick().repeat(200)
        assert [job.header.dest_qp for job in w.jobs] == [0x102, 0x102]
        result = w.dut.replier.result
        ctx.set(result.index, 8)
        ctx.set(result.row, {"value": 5})
        ctx.set(result.enable, 1)
        await ctx.tick()
        ctx.set(result.enable, 0)
        ctx.set(w.dut.replier.saved_at, 24)
        ctx.set(w.dut.replier.saved, together)
        await land(ctx, w, 8)
        await w.activate(ctx, 1, READ)
        await w.until(ctx, 4)
        assert [s[0] for s in w.said()[2:]] == [Operation.ATOMIC_ACK, Operation.READ_RESP_ONLY]
        assert w.jobs[2].header.va == 5

    run(scenario)


def test_each_read_is_known_to_be_answered_when_its_response_goes_out():
    """A peer that has a response may send another READ, however late the check's answer is."""

    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        for n in range(3):
            resource = {"va": 0, "rkey": 9, "length": MTU, "psn": 10 + n, "msn": 1 + n}
            await w.accept(ctx, 8 + n, **resource)
        await w.program(ctx, w.dut.rx, 1, psn=13, msn=3, read_tail=3)
        replier, sent, told = w.dut.replier, 0, 0
        ctx.set(replier.activate.payload, {"qp": 1, "flags": READ})
        ctx.set(replier.activate.valid, 1)
        for _ in range(300):
            *_, taken, job, writes, row = await ctx.tick().sample(
                replier.activate.ready,
                replier.job.valid & replier.job.ready,
                replier.row_write.enable,
                replier.row_write.row,
            )
            if taken:
                ctx.set(replier.activate.valid, 0)
            if writes:
                told = row.read_head
            sent += job
            assert told >= sent
        assert sent == told == 3

    run(scenario)


def test_replay_answers_the_tail_again():
    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        resource = {"va": 0, "rkey": 9, "length": 4 * MTU, "psn": 10, "msn": 1}
        await w.accept(ctx, 8, **resource)
        await w.program(
            ctx, w.dut.rx, 1, psn=14, msn=1, read_tail=1, replay=0, replay_skip=3, replay_seq=1
        )
        await w.program(ctx, w.dut.reply, 1, read_head=1, answered=1)
        await w.activate(ctx, 1, REPLAY | READ)
        await w.until(ctx, 1)
        assert w.said() == [(Operation.READ_RESP_LAST, 13, 1, 0x1F, MTU)]

    run(scenario)


@pytest.mark.parametrize("overwritten", [1, 2])
def test_reads_that_are_overwritten_are_not_answered_again(overwritten):
    """Of two READs to answer again, the first have given way to new ones: these are answered."""

    async def scenario(ctx, w):
        await w.connect(ctx, 1, max_dest_rd_atomic=2)
        for number in range(overwritten, 2 + overwritten):
            resource = {"va": 0x1000 * number, "rkey": 9, "length": MTU, "number": number}
            resource |= {"psn": 10 + number, "msn": 1 + number}
            await w.accept(ctx, 8 + number % 2, **resource)
        await w.program(
            ctx, w.dut.rx, 1, read_tail=2 + overwritten, replay=0, replay_skip=3, replay_seq=1
        )
        await w.program(ctx, w.dut.reply, 1, read_head=2, answered=2)
        await w.activate(ctx, 1, REPLAY | READ)
        await w.until(ctx, 2)
        psns = [psn for _, psn, *_ in w.said()]
        assert psns == [10 + number for number in range(overwritten, 2 + overwritten)]
        # All are answered now: nothing is due when the QP gets another turn.
        await w.activate(ctx, 1, READ)
        await w.until(ctx, 2)

    run(scenario)


def test_nak_only_while_the_gap_is_open():
    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        await w.program(ctx, w.dut.rx, 1, psn=7, msn=2, nak_sent=1, syndrome=0x60)
        await w.activate(ctx, 1, NAK)
        await w.until(ctx, 1)
        await w.program(ctx, w.dut.rx, 1, psn=9, ack_psn=8, ack_msn=2, nak_sent=0)
        await w.activate(ctx, 1, NAK | ACK)
        await w.until(ctx, 2)
        assert w.said() == [
            (Operation.ACKNOWLEDGE, 7, 2, 0x60, 0),
            (Operation.ACKNOWLEDGE, 8, 2, 0x1F, 0),
        ]

    run(scenario)


def responses(w, qp):
    """PSN and syndrome of what goes out for a QP, the NAK's syndrome as 0x62."""
    sent = [job.header for job in w.jobs if job.header.dest_qp == 0x100 + qp]
    return [(header.psn, header.syndrome) for header in sent]


async def reads(ctx, w, qp, count, *, length=MTU, va=0, psn=10):
    """READs of a QP that the responder has accepted, each of as many packets as its length has."""
    packets = max(1, -(-length // MTU))
    for n in range(count):
        resource = {"va": va, "rkey": 9, "length": length, "psn": psn + n * packets, "msn": 1 + n}
        await w.accept(ctx, 8 * qp + n, **resource)
    row = {"psn": psn + count * packets, "ack_psn": psn - 1, "msn": count, "read_tail": count}
    await w.program(ctx, w.dut.rx, qp, **row)


def test_key_that_went_away_becomes_a_nak():
    """The READs behind it are dropped, but for what had been handed over before the answer."""

    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        await reads(ctx, w, 1, 4, length=2 * MTU)
        w.refuse = lambda job: 10 if job.header.psn == 11 and job.source == TxSource.KEY else 0
        await w.activate(ctx, 1, READ | ACK)
        await ctx.tick().repeat(400)
        said = responses(w, 1)
        assert said[0] == (10, 0x1F)
        assert (11, 0x62) in said
        nak = said.index((11, 0x62))
        assert all(psn > 11 for psn, _ in said[1:nak]), "what had been handed over goes out"
        assert (w.jobs[nak].header.opcode, w.jobs[nak].header.msn) == (Operation.ACKNOWLEDGE, 0)
        assert said[nak + 1 :] in ([], [(9, 0x1F)]), "no response behind the NAK"
        # The peer may go on after it has been set up again: nothing of the old READs comes.
        before = len(w.jobs)
        await w.activate(ctx, 1, ACK)
        await w.until(ctx, before + 1)
        assert responses(w, 1)[-1] == (9, 0x1F)

    run(scenario)


@pytest.mark.parametrize("delay", [3, 40])
def test_one_nak_for_many_refused_responses(delay):
    """Whatever is refused behind the first, of the same QP, needs no NAK; other QPs go on."""

    async def scenario(ctx, w):
        w.delay, w.most = delay, 32
        for qp in (1, 2, 3):
            await w.connect(ctx, qp)
            await reads(ctx, w, qp, 4, va=qp << 12)
        w.refuse = lambda job: 10 if job.source == TxSource.KEY and job.va >> 12 != 2 else 0
        for qp in (1, 2, 3):
            await w.activate(ctx, qp, READ)
        await ctx.tick().repeat(600)
        assert responses(w, 1) == responses(w, 3) == [(10, 0x62)]
        assert responses(w, 2) == [(10 + n, 0x1F) for n in range(4)]
        assert ctx.get(w.dut.replier.naks) == 2
        assert ctx.get(w.dut.replier.read_packets) == 4
        # A second generation: READs accepted later can be refused again.
        for qp in (1, 3):
            await w.program(ctx, w.dut.rx, qp, psn=15, msn=5, read_tail=5)
            row = {"va": qp << 12, "rkey": 9, "length": MTU, "psn": 14, "msn": 5}
            await w.accept(ctx, 8 * qp, **row)
            await w.activate(ctx, qp, READ)
        await ctx.tick().repeat(300)
        assert responses(w, 1) == responses(w, 3) == [(10, 0x62), (14, 0x62)]

    run(scenario)


def test_refused_in_the_middle_of_a_long_read():
    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        await reads(ctx, w, 1, 1, length=11 * MTU)
        w.refuse = lambda job: 10 if job.header.psn == 12 and job.source == TxSource.KEY else 0
        await w.activate(ctx, 1, READ)
        await ctx.tick().repeat(600)
        said = responses(w, 1)
        assert said[:2] == [(10, 0x1F), (11, 0x1F)] and said[-1] == (12, 0x62)
        assert len(said) < 11, "the rest of the READ was given up"

    run(scenario)


def test_acks_do_not_overtake_responses():
    async def scenario(ctx, w):
        w.delay, w.most = 60, 32
        for qp in (1, 2):
            await w.connect(ctx, qp)
            await reads(ctx, w, qp, 4, length=3 * MTU)
            await w.activate(ctx, qp, READ | ACK)
        await w.until(ctx, 26)
        for qp in (1, 2):
            want = [(10 + n, 0x1F) for n in range(12)] + [(9, 0x1F)]
            assert responses(w, qp) == want
        turns = [job.header.dest_qp for job in w.handed]
        assert turns != sorted(turns), "nobody waits until the other has all he wants"

    run(scenario)


def test_cycles():
    """Of a response packet of one QP and of QPs in turn, and of ACKs of QPs in turn."""

    async def measure(ctx, w, count, flags, qps):
        start, before = len(w.cycles), len(w.jobs)
        ctx.set(w.dut.replier.hold, 1)  # all stand in the list when the first is taken
        for qp in qps:
            await w.activate(ctx, qp, flags)
        ctx.set(w.dut.replier.hold, 0)
        await w.until(ctx, count + before)
        taken = w.cycles[start:]
        return (taken[-1] - taken[0]) / (len(taken) - 1)

    async def scenario(ctx, w):
        w.delay, w.most = 14, 32
        qps = range(8)
        for qp in qps:
            await w.connect(ctx, qp)
        await reads(ctx, w, 1, 4)
        await reads(ctx, w, 2, 1, length=4 * MTU)
        assert await measure(ctx, w, 4, READ, [1]) <= 2
        assert await measure(ctx, w, 4, READ, [2]) <= 2
        for qp in qps:
            await w.program(ctx, w.dut.reply, qp, read_head=0)
            await reads(ctx, w, qp, 1)
        assert await measure(ctx, w, 8, READ, qps) <= 4
        assert await measure(ctx, w, 8, ACK, qps) <= 4

    run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_random_turns(seed):
    """All READs of all QPs are answered whole and in order, whatever is refused and when."""
    rng = random.Random(seed)

    async def scenario(ctx, w):
        w.delay, w.most = rng.choice((2, 15, 70)), rng.choice((2, 8, 32))
        wanted, bad = {}, {qp: rng.choice((None, None, 10 + rng.randrange(12))) for qp in range(8)}
        for qp in range(8):
            await w.connect(ctx, qp)
            await reads(ctx, w, qp, 4, length=(packets := rng.choice((1, 2, 3, 7))) * MTU)
            wanted[qp] = 4 * packets
        w.refuse = lambda job: (
            10
            if job.source == TxSource.KEY and job.header.psn == bad[job.header.dest_qp - 0x100]
            else 0
        )
        for qp in rng.sample(range(8), 8):
            await w.activate(ctx, qp, READ | rng.choice((0, ACK)))
        await ctx.tick().repeat(3000 * min(slower(), 5))
        for qp, count in wanted.items():
            mine = [job.header for job in w.jobs if job.header.dest_qp == 0x100 + qp]
            psns = [one.psn for one in mine if one.opcode != Operation.ACKNOWLEDGE]
            naks = [one.psn for one in mine if one.syndrome == 0x62]
            everything = list(range(10, 10 + count))
            if bad[qp] is None or bad[qp] >= 10 + count:
                assert psns == everything and not naks
            else:
                assert naks == [bad[qp]] and psns == sorted(psns)
                before = bad[qp] - 10
                assert psns[:before] == everything[:before] and bad[qp] not in psns

    run(scenario)


def test_a_drain_waits_for_checks_and_naks():
    async def scenario(ctx, w):
        w.delay = 50
        await w.connect(ctx, 1)
        await reads(ctx, w, 1, 2)
        w.refuse = lambda job: 10 if job.source == TxSource.KEY else 0
        await w.activate(ctx, 1, READ)
        while len(w.handed) < 2:
            await ctx.tick()
        ctx.set(w.dut.replier.hold, 1)
        await w.activate(ctx, 2, ACK)
        await ctx.tick().repeat(5)
        assert not ctx.get(w.dut.replier.turned)
        await ctx.tick().until(w.dut.replier.turned)
        assert w.handed[-1].header.syndrome == 0x62, "the NAK is on its way"
        await ctx.tick().repeat(60 * slower())
        assert responses(w, 1) == [(10, 0x62)]
        assert not responses(w, 2), "no QP is taken while the drain waits"
        await w.connect(ctx, 2)
        ctx.set(w.dut.replier.hold, 0)
        await ctx.tick().repeat(100 * slower())
        assert len(responses(w, 2)) == 1

    run(scenario)


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.ERR])
def test_silent_states(state):
    async def scenario(ctx, w):
        await w.connect(ctx, 1, state=state)
        await w.program(ctx, w.dut.rx, 1, psn=7, msn=2, nak_sent=1, read_tail=1)
        await w.activate(ctx, 1, NAK | ACK | READ)
        await ctx.tick().repeat(200)
        assert not w.jobs

    run(scenario)
