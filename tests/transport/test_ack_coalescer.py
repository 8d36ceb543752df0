"""AckCoalescer: every ACK left out is covered by a later answer, and soon."""

import random

import pytest

from hdl.transport.receive.ack_coalescer import RUN, AckCoalescer
from tests.simulate import simulate

DEPTH = 32
SERVICE = 4  # cycles a packet, at least as many as Settle takes


async def queue(ctx, dut, packets, pace):
    """Puts (QP, whether it is answered) through a queue; returns what went: (QP, answers, skipped,
    cycle it came in, cycle it went out)."""
    waiting, went, cycle, busy = [], [], 0, 0
    packets = list(packets)
    while packets or waiting:
        enter = bool(packets) and len(waiting) < DEPTH and pace(cycle)
        ctx.set(dut.pushed, enter)
        if enter:
            qp, answers = packets[0]
            ctx.set(dut.pushed_qp, qp)
            ctx.set(dut.pushed_answers, answers)
        ctx.set(dut.skip, 0)
        ctx.set(dut.answer, 0)
        leaving = bool(waiting) and busy >= SERVICE
        ctx.set(dut.popped, leaving)
        if waiting:
            qp, answers, came = waiting[0]
            ctx.set(dut.qp, qp)
            skipped = leaving and answers and ctx.get(dut.covered)
            ctx.set(dut.skip, skipped)
            ctx.set(dut.answer, leaving and answers and not skipped)
            if leaving:
                assert not skipped or any(of == qp for of, says, _ in waiting[1:] if says)
                went.append((qp, answers, bool(skipped), came, cycle))
        await ctx.tick()
        busy = 0 if leaving or not waiting else busy + 1
        if leaving:
            waiting.pop(0)
        if enter:
            waiting.append((*packets.pop(0), cycle))
        cycle += 1
    return went


def run(packets, pace):
    dut, result = AckCoalescer(depth=DEPTH), []

    async def bench(ctx):
        result.extend(await queue(ctx, dut, packets, pace))

    simulate(dut, bench, deadline=20_000)
    return result


def owed(went):
    """Cycles from each packet left out to the answer that covers it; fails if that is not among
    the next ``RUN`` answered packets."""
    waits = []
    for number, (qp, answers, skipped, _, left) in enumerate(went):
        if answers and skipped:
            later = [one for one in went[number + 1 :] if one[1]][:RUN]
            covers = [end for of, _, skip, _, end in later if of == qp and not skip]
            assert covers, "an ACK is held back for too long"
            waits.append(covers[0] - left)
    return waits


def test_without_load_each_is_answered():
    went = run([(1, True)] * 20, lambda cycle: cycle % 12 == 0)
    assert not any(skipped for _, _, skipped, _, _ in went)


def test_under_load_one_answer_for_many():
    went = run([(1, True)] * 64, lambda cycle: True)
    assert sum(not skipped for _, _, skipped, _, _ in went) == 64 // (RUN + 1)


def test_bursts_of_qps_in_turn():
    packets = [(qp, True) for _ in range(4) for qp in range(6) for _ in range(8)]
    went = run(packets, lambda cycle: cycle % 4 != 0)
    answered = sum(not skipped for _, _, skipped, _, _ in went)
    assert answered <= len(went) // 4
    owed(went)


@pytest.mark.parametrize("seed", range(8))
def test_every_ack_left_out_is_covered(seed):
    """Also with QPs in turn, and packets that are not answered. The bound in cycles: what ``RUN``
    queues take that are full of packets that nobody answers."""
    rng = random.Random(seed)
    qps, often, pace = rng.choice((1, 2, 5)), rng.choice((0.5, 0.9, 1)), rng.choice((0.1, 0.3, 1))
    packets = [(rng.randrange(qps), rng.random() < often) for _ in range(400)]
    waits = owed(run(packets, lambda _: rng.random() < pace))
    assert all(wait <= RUN * DEPTH * (SERVICE + 1) for wait in waits)


def test_depth_is_checked():
    with pytest.raises(ValueError, match="power of two"):
        AckCoalescer(depth=24)
