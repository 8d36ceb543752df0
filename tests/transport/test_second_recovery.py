"""Another recovery policy than the card's in requester and completer: nothing else is touched."""

import pytest
from amaranth.hdl import Signal

from hdl.abi.enums import QpType, WcStatus
from hdl.config import NicConfig
from hdl.ports.rows import QpState
from hdl.transport.receive.completer import Completer
from hdl.transport.receive.types import Syndrome
from hdl.transport.recovery.go_back_n import GO_BACK_N
from hdl.transport.recovery.policy import Verdict
from hdl.wire.opcodes import Kind
from tests.simulate import simulate
from tests.transport.second_recovery import WHOLE_MESSAGES, WholeMessages
from tests.transport.send_side import run, wqe
from tests.transport.test_resend import LOADS, MTU, Peer, play, psns


def test_a_message_is_sent_again_from_its_beginning():
    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=5 * MTU), wqe(length=9)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 6)
        await ctx.tick().repeat(100)
        world.jobs.clear()
        await world.acknowledge(ctx, 2, psn=0x103, start=0x100)
        await world.restart(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 6)
        await ctx.tick().repeat(200)
        assert psns(world) == [0x100, 0x101, 0x102, 0x103, 0x104, 0x105]
        assert [job.offset for job in world.jobs] == [0, MTU, 2 * MTU, 3 * MTU, 4 * MTU, 0]

    run(scenario, recovery=WHOLE_MESSAGES)


class PeerOfWholeMessages(Peer):
    """A peer that knows where such a QP goes back to."""

    def origin(self):
        oldest = self._oldest()
        return oldest.begin if oldest else self.acknowledged


@pytest.mark.parametrize(
    "name", ["lost1", *(pytest.param(name, marks=pytest.mark.slow) for name in ("late1", "late3"))]
)
def test_everything_is_sent_whatever_is_lost(name):
    """The random traffic of ``test_resend.py``: three QPs, packets and answers lost or late."""
    play(name, LOADS[name], PeerOfWholeMessages, WHOLE_MESSAGES)


#: A message of 16 packets on its way, and how often its QP may go back.
FIRST, LAST, RETRIES = 0x100, 0x10F, 2


def naks(recovery, count):
    """NAKs, each for the packet behind that of the one before. Returns for each of them whether the
    QP goes back, and the status with which its WQE ends."""
    completer = Completer(config=NicConfig(width=64, qps=8), recovery=recovery)
    found = []

    async def bench(ctx):
        work = completer.i.payload
        ctx.set(work.operation, {"kind": Kind.ACKNOWLEDGE, "response": 1})
        cfg = {"state": QpState.RTS, "type": QpType.RC, "path_mtu": 1, "retry_count": RETRIES}
        ctx.set(work.cfg, cfg)
        ctx.set(work.ack, {"psn": FIRST, "start": FIRST})
        ctx.set(work.sent, {"psn": LAST + 1})
        entry = {"first_psn": FIRST, "last_psn": LAST, "complete": 1}
        ctx.set(completer.head_rsp.payload, {"valid": 1, "entry": entry})
        ctx.set(completer.head_rsp.valid, 1)
        for port in ("head_req", "job", "pending", "restart", "timer", "wake", "repoke", "pop"):
            ctx.set(getattr(completer, port).ready, 1)
        for number in range(1, count + 1):
            ctx.set(work.header, {"psn": FIRST + number, "syndrome": Syndrome.PSN_SEQUENCE})
            ctx.set(completer.i.valid, 1)
            await ctx.tick().until(completer.i.ready)
            ctx.set(completer.i.valid, 0)
            again, status = False, None
            async for *_, busy, back, ends, effects, write, row in ctx.tick().sample(
                completer.busy,
                completer.restart.valid,
                completer.pending.valid,
                completer.pending.payload.effects,
                completer.ack_write.enable,
                completer.ack_write.row,
            ):
                again |= bool(back)
                if ends and effects.complete:
                    status = effects.completion.status
                if write:
                    ctx.set(work.ack, row)
                if not busy:
                    break
            found.append((again, status))

    simulate(completer, bench, deadline=2000)
    return found


def test_the_card_counts_retries_of_a_packet():
    """Go-back-N, for comparison: each NAK acknowledges something, so the counts begin anew."""
    assert naks(GO_BACK_N, 5) == [(True, None)] * 5


def test_a_policy_counts_retries_of_a_message():
    gives_up = (False, WcStatus.RETRY_EXC_ERR)
    assert naks(WHOLE_MESSAGES, RETRIES + 1) == [(True, None)] * RETRIES + [gives_up]


class Undecided(WholeMessages):
    """It sends again and gives up at once, which no policy may."""

    def judge(self, m, loss, acknowledged, at):
        verdict, both = super().judge(m, loss, acknowledged, at), Signal(Verdict)
        m.d.comb += [both.eq(verdict), both.gives_up.eq(verdict.again)]
        return both


def test_a_policy_that_does_not_decide_is_found_out():
    with pytest.raises(AssertionError, match="either sends again or gives up"):
        naks(Undecided(), 1)
