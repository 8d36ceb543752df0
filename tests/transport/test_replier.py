"""Replier: order of READs, ACKs and NAKs, and what each packet says."""

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from hdl.context.table import Table
from hdl.ports.jobs import TxSource
from hdl.ports.rows import QpCfg, QpReply, QpRx, QpState, ReadResource
from hdl.transport.replier import Replier
from hdl.wire.opcodes import Operation
from tests.simulate import simulate
from tests.transport.send_side import CONFIG, gather_model

MTU = 256
ACK, NAK, READ, REPLAY = 1, 2, 4, 8


class ReplySide(Elaboratable):
    def __init__(self):
        self.replier = Replier(config=CONFIG)
        self.cfg = Table(row=QpCfg, depth=8, index_width=14, owned=False)
        self.rx = Table(row=QpRx, depth=8, index_width=14)
        self.reply = Table(row=QpReply, depth=8, index_width=14)
        self.pool = Table(row=ReadResource, depth=64, index_width=16)

    def elaborate(self, platform):
        m = Module()
        for name in ("replier", "cfg", "rx", "reply", "pool"):
            setattr(m.submodules, name, getattr(self, name))
        r = self.replier
        wiring.connect(m, r.cfg, self.cfg.read0)
        wiring.connect(m, r.rx, self.rx.read0)
        wiring.connect(m, r.row, self.reply.read0)
        wiring.connect(m, r.row_write, self.reply.write)
        wiring.connect(m, r.resource, self.pool.read0)
        return m


class World:
    silent = True

    def __init__(self):
        self.dut, self.jobs, self.refuse = ReplySide(), [], None
        self.handed = []

    async def gather(self, ctx):
        await gather_model(ctx, self.dut.replier, self)

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

    simulate(world.dut, bench, deadline=20_000, background=(world.gather,))


def test_acks_merge_into_the_newest():
    async def scenario(ctx, w):
        for qp in (1, 2):
            await w.connect(ctx, qp)
            await w.program(ctx, w.dut.rx, qp, psn=0, msn=qp)
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
    async def scenario(ctx, w):
        await w.connect(ctx, 3)
        resource = {"va": 0x7000, "rkey": 9, "length": length, "psn": 0xFFFFFF, "msn": 5}
        await w.program(ctx, w.dut.pool, 24, **resource)
        count = max(1, -(-length // MTU))
        await w.program(ctx, w.dut.rx, 3, psn=count, msn=6, read_tail=1)
        await w.activate(ctx, 3, READ | ACK)
        await w.until(ctx, count + 1)
        said = w.said()
        assert [s[1] for s in said[:-1]] == [(0xFFFFFF + n) & 0xFFFFFF for n in range(count)]
        assert all(s[2] == 5 for s in said[:-1])
        assert sum(s[4] for s in said) == length
        assert [j.va for j in w.jobs[:-1]] == [0x7000 + n * MTU for n in range(count)]
        middle = [Operation.READ_RESP_MIDDLE] * (count - 2)
        want = [Operation.READ_RESP_FIRST, *middle, Operation.READ_RESP_LAST]
        assert [s[0] for s in said[:-1]] == (want if count > 1 else [Operation.READ_RESP_ONLY])
        assert said[-1] == (Operation.ACKNOWLEDGE, count - 1, 6, 0x1F, 0)

    run(scenario)


def test_each_read_is_known_to_be_answered_before_the_next():
    """A peer that has a response may send another READ, however long the next check takes."""

    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        for n in range(3):
            resource = {"va": 0, "rkey": 9, "length": MTU, "psn": 10 + n, "msn": 1 + n}
            await w.program(ctx, w.dut.pool, 8 + n, **resource)
        await w.program(ctx, w.dut.rx, 1, psn=13, msn=3, read_tail=3)
        replier, seen = w.dut.replier, []
        ctx.set(replier.activate.payload, {"qp": 1, "flags": READ})
        ctx.set(replier.activate.valid, 1)
        for _ in range(300):
            await ctx.tick()
            ctx.set(replier.activate.valid, 0)
            if ctx.get(replier.job.valid) and ctx.get(replier.job.ready):
                seen.append("job")
            if ctx.get(replier.row_write.enable):
                head = ctx.get(replier.row_write.row.read_head)
                if head not in seen:
                    seen.append(head)
        assert seen == ["job", 1, "job", 2, "job", 3]

    run(scenario)


def test_replay_answers_the_tail_again():
    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        resource = {"va": 0, "rkey": 9, "length": 4 * MTU, "psn": 10, "msn": 1}
        await w.program(ctx, w.dut.pool, 8, **resource)
        await w.program(
            ctx, w.dut.rx, 1, psn=14, msn=1, read_tail=1, replay=0, replay_skip=3, replay_seq=1
        )
        await w.program(ctx, w.dut.reply, 1, read_head=1)
        await w.activate(ctx, 1, REPLAY | READ)
        await w.until(ctx, 1)
        assert w.said() == [(Operation.READ_RESP_LAST, 13, 1, 0x1F, MTU)]

    run(scenario)


def test_nak_only_while_the_gap_is_open():
    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        await w.program(ctx, w.dut.rx, 1, psn=7, msn=2, nak_sent=1, syndrome=0x60)
        await w.activate(ctx, 1, NAK)
        await w.until(ctx, 1)
        await w.program(ctx, w.dut.rx, 1, psn=9, msn=2, nak_sent=0, syndrome=0x60)
        await w.activate(ctx, 1, NAK | ACK)
        await w.until(ctx, 2)
        assert w.said() == [
            (Operation.ACKNOWLEDGE, 7, 2, 0x60, 0),
            (Operation.ACKNOWLEDGE, 8, 2, 0x1F, 0),
        ]

    run(scenario)


def test_key_that_went_away_becomes_a_nak():
    async def scenario(ctx, w):
        await w.connect(ctx, 1)
        for n in range(2):
            resource = {"va": 0, "rkey": 9, "length": 2 * MTU, "psn": 10 + 2 * n, "msn": 1 + n}
            await w.program(ctx, w.dut.pool, 8 + n, **resource)
        await w.program(ctx, w.dut.rx, 1, psn=14, msn=2, read_tail=2)
        w.refuse = lambda job: 10 if job.source == TxSource.KEY and job.va == MTU else 0
        await w.activate(ctx, 1, READ)
        await w.until(ctx, 2)
        assert w.said()[1] == (Operation.ACKNOWLEDGE, 11, 0, 0x62, 0)

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
