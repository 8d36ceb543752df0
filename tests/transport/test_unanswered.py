"""The requester of services without answers: a WQE ends when its last packet has been checked."""

import random
from dataclasses import replace

import pytest

from hdl.abi.enums import QpType, WcStatus, WrOpcode
from tests.transport.send_side import CONFIG, run, wqe

MTU = 256


async def finished(ctx, world, qp, count):
    """Statuses of the oldest WQEs, in order, each taken off when it is complete."""
    found = []
    while len(found) < count:
        await world.until(ctx, lambda: qp in world.pokes)
        world.pokes.remove(qp)
        while len(found) < count:
            entry = await world.oldest(ctx, qp)
            if entry is None or not entry.complete:
                break
            found.append((entry.position, entry.status))
            await world.pop(ctx, qp)
    return found


@pytest.mark.parametrize("length", [0, MTU, MTU + 1, 5 * MTU])
def test_uc_wqe_is_complete_behind_its_last_check(length):
    async def scenario(ctx, world):
        world.delay = 200
        await world.connect(ctx, 2, psn=0xFFFFFE, type=QpType.UC)
        world.queues[2].append(wqe(WrOpcode.SEND, length))
        await world.ring(ctx, 2)
        count = max(1, -(-length // MTU))
        await world.until(ctx, lambda: len(world.handed) == count)
        await ctx.tick().repeat(100)
        entry = await world.oldest(ctx, 2)
        assert entry is not None and not entry.complete and not world.pokes
        assert await finished(ctx, world, 2, 1) == [(0, 0)]
        opcodes = [job.header.opcode for job in world.jobs]
        single, first, middle, last = 0x24, 0x20, 0x21, 0x22
        assert opcodes == ([single] if count == 1 else [first, *[middle] * (count - 2), last])
        assert [job.header.psn for job in world.jobs] == [
            (0xFFFFFE + n) & 0xFFFFFF for n in range(count)
        ]

    run(scenario)


def test_uc_knows_no_read():
    async def scenario(ctx, world):
        await world.connect(ctx, 2, type=QpType.UC)
        world.queues[2] = [wqe(WrOpcode.RDMA_READ, 9), wqe()]
        await world.ring(ctx, 2)
        wanted = [(0, WcStatus.LOC_QP_OP_ERR), (1, WcStatus.WR_FLUSH_ERR)]
        assert await finished(ctx, world, 2, 2) == wanted
        assert not world.handed

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_uc_ends_in_order_whatever_is_refused(seed):
    """QPs of both kinds, messages of any length, some packets refused: each WQE ends once, in its
    order, with its own status; behind the first that fails with another one than SUCCESS."""
    rng = random.Random(seed)
    types = {2: QpType.UC, 3: QpType.RC, 4: QpType.UC}
    lengths = {qp: [rng.choice((0, 9, MTU, 3 * MTU, 9 * MTU)) for _ in range(12)] for qp in types}
    bad = {qp: rng.randrange(6, 20) for qp in types}

    async def scenario(ctx, world):
        world.refuse = lambda job: (
            WcStatus.LOC_PROT_ERR
            if job.offset == 0 and bad[job.qp] == job.header.psn - 0x100
            else 0
        )
        for qp, type_ in types.items():
            await world.connect(ctx, qp, type=type_)
            world.queues[qp] = [wqe(length=length) for length in lengths[qp]]
            await world.ring(ctx, qp)
        for qp in (2, 4):
            psn, status = 0, []
            for length in lengths[qp]:
                status.append(WcStatus.LOC_PROT_ERR if psn == bad[qp] else 0)
                psn += max(1, -(-length // MTU))
            found = await finished(ctx, world, qp, len(lengths[qp]))
            assert [position for position, _ in found] == list(range(len(lengths[qp])))
            broken = status.index(WcStatus.LOC_PROT_ERR) if any(status) else len(status)
            assert [one for _, one in found[:broken]] == [0] * broken
            if any(status):
                assert found[broken][1] == WcStatus.LOC_PROT_ERR
                assert found[-1][1] == WcStatus.WR_FLUSH_ERR

    run(scenario, deadline=60_000, config=replace(CONFIG, outstanding=64))
