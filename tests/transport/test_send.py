"""Scheduler, requester and outstanding table together."""

import random
from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise

import pytest

from hdl.abi.enums import WcOpcode, WcStatus, WrOpcode
from hdl.config import NicConfig
from hdl.ports.jobs import TxSource
from hdl.ports.rows import QpState
from hdl.wire.opcodes import Operation
from tests.context.late import slower
from tests.transport.send_side import run, wqe

MTU = 256


def packets(world, qp=None):
    jobs = [j for j in world.jobs if qp is None or j.header.dest_qp == 0x4000 + qp]
    return [(j.header.opcode, j.header.psn, j.offset, j.header.length) for j in jobs]


@pytest.mark.parametrize(
    "opcode,length,operations",
    [
        (WrOpcode.SEND, 0, [Operation.SEND_ONLY]),
        (WrOpcode.SEND, MTU, [Operation.SEND_ONLY]),
        (WrOpcode.SEND_WITH_IMM, MTU + 1, [Operation.SEND_FIRST, Operation.SEND_LAST_IMM]),
        (WrOpcode.RDMA_WRITE_WITH_IMM, 3, [Operation.WRITE_ONLY_IMM]),
        (
            WrOpcode.RDMA_WRITE,
            3 * MTU,
            [Operation.WRITE_FIRST, Operation.WRITE_MIDDLE, Operation.WRITE_LAST],
        ),
        (WrOpcode.RDMA_READ, 3 * MTU, [Operation.READ_REQUEST]),
    ],
)
def test_message_is_cut_into_packets(opcode, length, operations):
    async def scenario(ctx, world):
        await world.connect(ctx, 2, psn=0xFFFFFE)
        world.queues[2].append(
            wqe(opcode, length, remote_addr=0x1000, rkey=7, imm=0x99, solicited=1)
        )
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == len(operations))
        await ctx.tick().repeat(60)
        assert [p[0] for p in packets(world)] == operations
        assert [p[1] for p in packets(world)] == [
            (0xFFFFFE + n) & 0xFFFFFF for n in range(len(operations))
        ]
        read = opcode == WrOpcode.RDMA_READ
        assert sum(p[3] for p in packets(world)) == (0 if read else length)
        first, last = world.jobs[0].header, world.jobs[-1].header
        assert first.va == 0x1000 and first.dma_length == length
        assert first.rkey == (0x99 if "SEND" in opcode.name else 7)
        assert last.ack_request
        silent = opcode in (WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE)
        assert last.solicited == (not silent)
        entry = await world.oldest(ctx, 2)
        assert entry.complete and entry.status == 0 and entry.first_psn == 0xFFFFFE
        count = max(1, -(-length // MTU))
        assert entry.last_psn == (0xFFFFFE + count - 1) & 0xFFFFFF

    run(scenario)


def test_qps_keep_their_own_order():
    async def scenario(ctx, world):
        world.lanes = 1
        for qp in (2, 3):
            await world.connect(ctx, qp)
            world.queues[qp] = [wqe(length=10 * MTU), wqe(length=2 * MTU), wqe(length=1)]
            await world.ring(ctx, qp)
        await world.until(ctx, lambda: len(world.jobs) == 26)
        for qp in (2, 3):
            assert [p[1] for p in packets(world, qp)] == [0x100 + n for n in range(13)]
            assert [p[2] for p in packets(world, qp)] == [
                *(MTU * n for n in range(10)),
                0,
                MTU,
                0,
            ]

    run(scenario)


def test_messages_are_cut_where_others_wait():
    """After ``quantum`` packets; one that has been asked for again follows on from there."""

    async def scenario(ctx, world):
        for qp in (2, 3):
            await world.connect(ctx, qp)
            world.queues[qp] = [wqe(length=40 * MTU)]
            await world.ring(ctx, qp)
        await world.until(ctx, lambda: len(world.jobs) == 80)
        for qp in (2, 3):
            assert [p[2] for p in packets(world, qp)] == [MTU * n for n in range(40)]
        order = [j.header.dest_qp for j in world.jobs]
        turns = [len(list(packets)) for _qp, packets in groupby(order)]
        assert len(turns) >= 8 and max(turns) <= 20, turns

    run(scenario)


def test_long_messages_do_not_pile_up():
    """Another QP's message stands behind the one that is being sent and the next, not behind all
    that lines are free for."""

    async def scenario(ctx, world):
        world.fetch_delay, world.lanes, each = 20, 64, 40
        for qp in (2, 3):
            await world.connect(ctx, qp)
        world.queues[2] = [wqe(length=each * MTU)] * 12
        world.queues[3] = [wqe(length=9)]
        await world.ring(ctx, 2, next_index=12)
        for begun in (3, 7):
            await world.until(ctx, lambda begun=begun: len(world.jobs) >= begun * each + 10)
            assert len(world.asked) <= begun + 3
        await world.ring(ctx, 3, next_index=1)
        await world.until(ctx, lambda: len(world.jobs) == 12 * each + 1)
        order = [j.header.dest_qp for j in world.jobs]
        assert order.index(order[0] ^ 1) <= 9 * each, "more than the next message was in front"

    run(scenario, config=replace(WIDE, quantum=2), deadline=60_000)


@pytest.mark.parametrize("at", range(5))
def test_restart_at_any_packet(at):
    async def scenario(ctx, world):
        await world.connect(ctx, 5)
        world.queues[5] = [wqe(WrOpcode.RDMA_WRITE, 5 * MTU - 3), wqe(length=9)]
        await world.ring(ctx, 5)
        await world.until(ctx, lambda: len(world.jobs) == 6)
        await ctx.tick().repeat(100)
        before = packets(world)
        world.jobs.clear()
        await world.acknowledge(ctx, 5, psn=0x100 + at, start=0x100)
        await world.restart(ctx, 5)
        await world.until(ctx, lambda: len(world.jobs) == 6 - at)
        await ctx.tick().repeat(200)
        assert packets(world) == before[at:]
        # No second entries: two WQEs, then none.
        for head in (100, 101):
            assert (await world.oldest(ctx, 5)).head == head
            await world.pop(ctx, 5)
        assert await world.oldest(ctx, 5) is None

    run(scenario)


def test_reads_wait_for_the_limit_and_wake():
    async def scenario(ctx, world):
        await world.connect(ctx, 1, max_rd_atomic=2)
        world.queues[1] = [wqe(WrOpcode.RDMA_READ, MTU * n) for n in (1, 2, 3, 4)]
        await world.ring(ctx, 1)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        await ctx.tick().repeat(300)
        assert len(world.jobs) == 2
        await world.wake(ctx, 1, reads=1, wake_generation=1)
        await world.until(ctx, lambda: len(world.jobs) == 3)
        await ctx.tick().repeat(300)
        assert len(world.jobs) == 3
        await world.wake(ctx, 1, reads=3, wake_generation=3)
        await world.until(ctx, lambda: len(world.jobs) == 4)
        assert [j.header.psn for j in world.jobs] == [0x100, 0x101, 0x103, 0x106]

    run(scenario)


def test_fence_waits_for_reads_only():
    async def scenario(ctx, world):
        await world.connect(ctx, 1)
        world.queues[1] = [wqe(length=1), wqe(WrOpcode.RDMA_READ, 9), wqe(length=2, fence=1)]
        await world.ring(ctx, 1)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        await ctx.tick().repeat(300)
        assert len(world.jobs) == 2
        await world.wake(ctx, 1, reads=1, wake_generation=1)
        await world.until(ctx, lambda: len(world.jobs) == 3)

    run(scenario)


@pytest.mark.parametrize(
    "opcode,operation,completion",
    [
        (WrOpcode.ATOMIC_CMP_AND_SWP, Operation.CMP_SWAP, WcOpcode.COMP_SWAP),
        (WrOpcode.ATOMIC_FETCH_AND_ADD, Operation.FETCH_ADD, WcOpcode.FETCH_ADD),
    ],
)
def test_atomics_are_sent_like_reads(opcode, operation, completion):
    """One packet and one PSN; operands out of the line, and a sink to be checked; the limit of
    READs counts them."""

    async def scenario(ctx, world):
        await world.connect(ctx, 1, max_rd_atomic=2)
        atomic = wqe(opcode, 8, remote_addr=0x7000, rkey=0x501, num_sge=3)
        world.queues[1] = [wqe(length=4), atomic, atomic, atomic]
        await world.ring(ctx, 1)
        await ctx.tick().repeat(300 * slower())
        assert [(p[0], p[2]) for p in packets(world)] == [
            (Operation.SEND_ONLY, 0),
            (operation, 496),
            (operation, 496),
        ]
        first, *jobs = world.jobs
        for n, job in enumerate(jobs, 1):
            assert job.source == TxSource.INLINE and job.check_sink and job.num_sge == 3
            assert (job.header.length, job.header.va, job.header.rkey) == (16, 0x7000, 0x501)
            assert job.header.psn == first.header.psn + n and job.header.ack_request
        await world.pop(ctx, 1)
        entry = await world.oldest(ctx, 1)
        assert (entry.data, entry.completion, entry.length) == (1, completion, 8)
        assert entry.first_psn == entry.last_psn and entry.complete

    run(scenario)


@pytest.mark.parametrize(
    "element,status",
    [
        ({"error": int(WcStatus.LOC_LEN_ERR)}, WcStatus.LOC_LEN_ERR),
        ({"opcode": 8}, WcStatus.LOC_QP_OP_ERR),
        ({"opcode": 5, "length": 7}, WcStatus.LOC_LEN_ERR),
        ({"opcode": 6, "length": 9}, WcStatus.LOC_LEN_ERR),
        ({"opcode": 6, "length": 8, "num_sge": 32}, WcStatus.LOC_QP_OP_ERR),
        ({"num_sge": 5}, WcStatus.LOC_QP_OP_ERR),
        ({"inline": 1, "length": 65}, WcStatus.LOC_QP_OP_ERR),
        ({"inline": 1, "opcode": int(WrOpcode.RDMA_READ)}, WcStatus.LOC_QP_OP_ERR),
    ],
)
def test_bad_wqe_ends_in_order_and_flushes_the_rest(element, status):
    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        await world.connect(ctx, 3)
        world.queues[2] = [wqe(length=5), wqe() | element, wqe(), wqe()]
        world.queues[3] = [wqe(length=6)]
        await world.ring(ctx, 2)
        await world.ring(ctx, 3)
        await world.until(ctx, lambda: len(world.pokes) == 3)
        assert len(packets(world, 2)) == 1 and len(packets(world, 3)) == 1
        for want in (0, status, WcStatus.WR_FLUSH_ERR, WcStatus.WR_FLUSH_ERR):
            entry = await world.oldest(ctx, 2)
            assert entry.complete and entry.status == want
            await world.pop(ctx, 2)

    run(scenario)


async def finish_all(ctx, world, qp, count, row):
    """As the completer of a QP in error: each poke finishes the oldest WQE, if it is complete.

    Returns the positions and statuses of ``count`` of them. ``row``: the completer's, kept by the
    caller.
    """
    found = []
    while len(found) < count:
        await world.until(ctx, lambda: qp in world.pokes)
        world.pokes.remove(qp)
        entry = await world.oldest(ctx, qp, stopped=1)
        if entry is None or not entry.complete:
            continue
        found.append((entry.position, entry.status))
        await world.pop(ctx, qp)
        row["reads"] = (row["reads"] + entry.data) % 256
        row["wake_generation"] = (row["wake_generation"] + 1) % 256
        await world.wake(ctx, qp, error=1, **row)
    return found


@pytest.mark.parametrize("first", ["flushed", "refused", "malformed"])
@pytest.mark.parametrize("together", [True, False])
def test_every_read_of_a_qp_in_error_comes_back(first, together):
    """However many there are, whatever the limit of READs is: once each, and in order."""
    count, row = 31, {"reads": 0, "wake_generation": 0}

    async def scenario(ctx, world):
        state = QpState.ERR if first == "flushed" else QpState.RTS
        await world.connect(ctx, 2, max_rd_atomic=4, state=state)
        work = [wqe(WrOpcode.RDMA_READ, 100) for _ in range(count)]
        if first == "refused":
            world.refuse = lambda job: WcStatus.LOC_PROT_ERR
        if first == "malformed":
            work[0]["error"] = int(WcStatus.LOC_QP_OP_ERR)
        found = []
        for posted in [work] if together else [[one] for one in work]:
            world.queues[2] += posted
            await world.ring(ctx, 2)
            found += await finish_all(ctx, world, 2, len(posted), row)
        assert [position for position, _ in found] == list(range(count))
        # Those on their way when the first one failed may have a status of their own.
        sent = {"flushed": 0, "malformed": 1, "refused": 4 if together else 1}[first]
        later = [status for _, status in found[sent:]]
        assert later == [WcStatus.WR_FLUSH_ERR] * (count - sent)
        await ctx.tick().repeat(300)
        assert await world.oldest(ctx, 2) is None

    run(scenario, deadline=60_000)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_refused_packet_fails_its_own_wqe(at):
    """What had been handed over behind it goes out, with PSNs that leave a gap."""

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=5), wqe(length=3 * MTU), wqe(length=3)]
        bad_psn = 0x101 + at
        world.refuse = lambda job: WcStatus.LOC_PROT_ERR if job.header.psn == bad_psn else 0
        await world.ring(ctx, 2)
        entries = []
        for want in (0, WcStatus.LOC_PROT_ERR, None):
            await world.until(ctx, lambda: world.pokes)
            for _ in range(300):
                entry = await world.oldest(ctx, 2)
                if entry is not None and entry.complete and entry.status == (want or entry.status):
                    break
            entries.append(entry)
            await world.pop(ctx, 2)
        assert [entry.wr_id for entry in entries] == [0, 0, 0]
        assert entries[1].status == WcStatus.LOC_PROT_ERR and entries[1].complete
        # The last one was on its way already, or it is flushed.
        assert entries[2].status in (0, WcStatus.WR_FLUSH_ERR) and entries[2].complete
        assert bad_psn not in [p[1] for p in packets(world)]
        assert [p[1] for p in packets(world)][: 1 + at] == [0x100 + n for n in range(1 + at)]
        # Nothing is sent any more.
        sent = len(world.jobs)
        world.queues[2].append(wqe(length=4))
        world.pokes.clear()
        await world.ring(ctx, 2)
        for _ in range(100):
            entry = await world.oldest(ctx, 2)
            if entry is not None:
                break
        assert entry is not None, "what is posted behind it was not looked at"
        assert entry.complete and entry.status == WcStatus.WR_FLUSH_ERR
        await world.until(ctx, lambda: world.pokes)
        assert len(world.jobs) == sent
        assert await drained(ctx, world)

    run(scenario)


def test_no_packet_is_answered_before_its_entry():
    """Else it could be on the wire, and acknowledged, while the completer finds no WQE for it."""

    async def scenario(ctx, world):
        requester, table = world.dut.requester, world.dut.outstanding
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=5)]
        await world.ring(ctx, 2)
        # The completer comes first: while it asks and asks nothing is appended.
        ctx.set(table.head_req.valid, 1)
        ctx.set(table.head_rsp.ready, 1)
        await world.until(ctx, lambda: world.jobs)
        for _ in range(100):
            *_, valid, ready = await ctx.tick().sample(
                requester.checked.valid, requester.checked.ready
            )
            assert not (valid and ready), "the gather may send it"
        ctx.set(table.head_req.valid, 0)
        await ctx.tick().until(requester.checked.valid & requester.checked.ready)
        assert (await world.oldest(ctx, 2)).complete

    run(scenario)


async def drained(ctx, world):
    """Whether a drain that begins now ends."""
    requester = world.dut.requester
    ctx.set(requester.drain_start, 1)
    await ctx.tick()
    ctx.set(requester.drain_start, 0)
    await ctx.tick().repeat(200)
    return ctx.get(requester.drain_done)


def test_drain_waits_for_refusals():
    """All that was handed over before has been answered, and a failed WQE's entry says so."""

    async def scenario(ctx, world):
        requester = world.dut.requester
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=5), wqe(length=3)]
        world.refuse = lambda job: WcStatus.LOC_PROT_ERR if job.header.psn == 0x101 else 0
        await world.ring(ctx, 2)
        handed = 0
        while handed < 2:
            _, _, valid, ready = await ctx.tick().sample(requester.job.valid, requester.job.ready)
            handed += valid & ready
        ctx.set(requester.drain_start, 1)
        await ctx.tick()
        ctx.set(requester.drain_start, 0)
        assert not ctx.get(requester.drain_done)
        await ctx.tick().until(requester.drain_done)
        assert len(world.jobs) == 1
        for want in (0, WcStatus.LOC_PROT_ERR):
            entry = await world.oldest(ctx, 2)
            assert entry.complete and entry.status == want
            await world.pop(ctx, 2)

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_many_refused_at_once(seed):
    """QPs that fail together: each WQE ends once, and the healthy QP's all go out."""
    rng = random.Random(seed)

    async def scenario(ctx, world):
        counts = {qp: 6 for qp in (1, 2, 3)} | {4: 12}
        bad = {qp: rng.randrange(0x100, 0x105) for qp in (1, 2, 3)}
        world.refuse = lambda job: (
            WcStatus.LOC_PROT_ERR if bad.get(job.header.dest_qp - 0x4000) == job.header.psn else 0
        )
        for qp, count in counts.items():
            await world.connect(ctx, qp)
            lengths = [rng.choice((1, MTU, 2 * MTU, 3 * MTU)) if qp != 4 else 9] * count
            world.queues[qp] = [wqe(length=length) for length in lengths]
            await world.ring(ctx, qp, next_index=count)
        ended = {qp: [] for qp in counts}
        for _ in range(4000):
            for qp in counts:
                entry = await world.oldest(ctx, qp)
                if entry is not None and entry.complete:
                    ended[qp].append(entry.status)
                    assert entry.head == 100 + len(ended[qp]) - 1
                    await world.pop(ctx, qp)
            if all(len(ended[qp]) == count for qp, count in counts.items()):
                break
            await ctx.tick().repeat(rng.choice((20, 40)))
        assert {qp: len(one) for qp, one in ended.items()} == counts
        assert ended[4] == [0] * 12
        assert [p[1] for p in packets(world, 4)] == [0x100 + n for n in range(12)]
        for qp, psn in bad.items():
            assert psn not in [p[1] for p in packets(world, qp)]
        assert await drained(ctx, world)

    run(scenario, deadline=120_000, config=WIDE)


def test_error_of_the_peer_stops_a_message_on_its_way():
    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=40 * MTU), wqe(length=3)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 6)
        await world.wake(ctx, 2, error=1, wake_generation=1)
        await world.until(ctx, lambda: len(world.pokes) == 2)
        assert len(world.jobs) < 20
        for _ in range(2):
            entry = await world.oldest(ctx, 2)
            assert entry.complete and entry.status == WcStatus.WR_FLUSH_ERR
            await world.pop(ctx, 2)

    run(scenario)


def test_reset_stops_a_message_at_its_next_packet():
    """Then nothing of the QP is sent, and the requester turns to the work of others."""

    async def scenario(ctx, world):
        requester = world.dut.requester
        await world.connect(ctx, 2)
        await world.connect(ctx, 3)
        world.queues[2] = [wqe(length=40 * MTU)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.jobs) == 6)
        await world.program(ctx, world.dut.cfg, 2, state=QpState.RESET)
        turned = 0
        while not turned:  # as Quiesce looks at it, in the next cycle at the earliest
            _, _, turned = await ctx.tick().sample(requester.turned)
        sent = len(world.handed)
        assert sent < 20
        world.queues[3] = [wqe(length=3)]
        await world.ring(ctx, 3)
        await world.until(ctx, lambda: any(j.header.dest_qp == 0x4003 for j in world.jobs))
        await ctx.tick().repeat(300)
        # One packet may have been handed over before it turned.
        assert [job.header.dest_qp for job in world.handed[sent + 1 :]] in ([], [0x4003])
        assert sum(job.header.dest_qp == 0x4002 for job in world.handed) <= sent + 1
        assert world.jobs[-1].header.dest_qp == 0x4003

    run(scenario)


def test_full_pool_waits_for_room_without_losing_anyone():
    async def scenario(ctx, world):
        for qp in (1, 2):
            await world.connect(ctx, qp)
            world.queues[qp] = [wqe(length=1) for _ in range(7)]
            await world.ring(ctx, qp)
        await world.until(ctx, lambda: len(world.jobs) == 8)
        done = {1: 0, 2: 0}
        for _ in range(400):
            for qp in (1, 2):
                if await world.oldest(ctx, qp) is not None:
                    await world.pop(ctx, qp)
                    done[qp] += 1
            if sum(done.values()) == 14:
                break
            await ctx.tick().repeat(20)
        assert done == {1: 7, 2: 7}
        for qp in (1, 2):
            assert [p[1] for p in packets(world, qp)] == [0x100 + n for n in range(7)]

    run(scenario)


def test_told_index_saves_reading_it_and_stale_ones_do_no_harm():
    async def scenario(ctx, world):
        await world.connect(ctx, 4)
        world.queues[4] = [wqe(length=n) for n in (1, 2, 3)]
        await world.ring(ctx, 4, next_index=3)
        await world.until(ctx, lambda: len(world.jobs) == 3)
        await world.ring(ctx, 4, next_index=1)
        await world.ring(ctx, 4, next_index=0x9000)
        world.queues[4].append(wqe(length=4))
        await world.ring(ctx, 4, next_index=4)
        await world.until(ctx, lambda: len(world.jobs) == 4)
        assert [j.header.length for j in world.jobs] == [1, 2, 3, 4]

    run(scenario)


def test_short_wqes_of_a_qp_are_asked_for_together():
    """Known ones, as many as have 128 KiB or as there are lines; a long one alone."""
    wanted = [(9, 16), (8192, 16), (8193, 8), (16384, 8), (16385, 4), (32769, 2), (65536, 2)]
    cases = [(wqe(length=length), most) for length, most in [*wanted, (65537, 1)]]
    for element, most in [*cases, (wqe(WrOpcode.RDMA_READ, 5), 16)]:

        async def scenario(ctx, world, element=element, most=most):
            world.fetch_delay, world.lanes = 200, 64
            seen = 2 + 3 * most  # three fetches' time behind the first two, of unknown length
            await world.connect(ctx, 2, max_rd_atomic=100, path_mtu=5)
            world.queues[2] = [element] * 60
            await world.ring(ctx, 2, next_index=60)
            await world.until(ctx, lambda: len(world.asked) >= seen, limit=20_000)
            assert [position for _, _, position in world.asked[:seen]] == list(range(seen))
            late = [at for at, _, _ in world.asked[2:seen]]
            together = max(sum(a <= at < a + 200 for at in late) for a in late)
            assert together == most, (together, most)

        run(scenario, config=WIDE, deadline=40_000)


WIDE = NicConfig(
    width=64,
    qps=8,
    cqs=4,
    mrs=16,
    gids=2,
    send_lines=16,
    outstanding=64,
    queue_size=64,
    read_sinks=64,
)


def test_reads_are_asked_for_as_they_can_be_started():
    """As many as may be outstanding, then one with each that finishes; none is fetched in vain."""

    async def scenario(ctx, world):
        world.fetch_delay, world.lanes = 60, 64
        await world.connect(ctx, 1, max_rd_atomic=4)
        await world.connect(ctx, 2)
        world.queues[1] = [wqe(WrOpcode.RDMA_READ, 5) for _ in range(30)]
        await world.ring(ctx, 1, next_index=30)
        await world.until(ctx, lambda: len(world.jobs) == 4)
        await ctx.tick().repeat(500)
        assert len(world.jobs) == len(world.asked) == 4
        finished = 0
        while finished < 26:
            step = min(26 - finished, 1 + finished % 3)
            finished += step
            for _ in range(step):
                await world.pop(ctx, 1)
            await world.wake(ctx, 1, reads=finished, wake_generation=finished)
            await world.until(ctx, lambda n=finished: len(world.jobs) == 4 + n)
            # Another QP never waits for them.
            world.queues[2].append(wqe(length=1))
            await world.ring(ctx, 2, next_index=len(world.queues[2]))
            sent = len(packets(world, 2))
            await world.until(ctx, lambda n=sent: len(packets(world, 2)) > n, limit=300)
            await world.pop(ctx, 2)
            world.jobs[:] = [j for j in world.jobs if j.header.dest_qp == 0x4001]
        assert [position for _, qp, position in world.asked if qp == 1] == list(range(30))

    run(scenario, config=WIDE)


def test_reads_of_several_qps_start_behind_each_other():
    """A sink that is on its way is waited for, also while others are given back: no WQE is fetched
    again for it."""
    qps, each, before = (1, 2, 3), 16, 14
    config = replace(WIDE, outstanding=64, read_sinks=64, max_rd_atomic=16)

    async def scenario(ctx, world):
        world.lanes, world.delay = 64, 0
        world.queues[4] = [wqe(WrOpcode.RDMA_READ, 5) for _ in range(before)]
        await world.connect(ctx, 4, max_rd_atomic=16)
        await world.ring(ctx, 4, next_index=before)
        await world.until(ctx, lambda: len(world.jobs) == before)
        world.holds = True
        await ctx.tick().repeat(20)  # the last one gets its entry behind its job
        for _ in range(before):
            await world.pop(ctx, 4)
        for qp in qps:
            await world.connect(ctx, qp, max_rd_atomic=16)
            world.queues[qp] = [wqe(WrOpcode.RDMA_READ, 5) for _ in range(each)]
            await world.ring(ctx, qp, next_index=each)
        await world.until(ctx, lambda: len(world.jobs) == before + 1)
        world.holds = False  # sinks come back one behind the other while others are taken
        await world.until(ctx, lambda: len(world.jobs) == before + each * len(qps))
        asked = Counter((qp, position) for _, qp, position in world.asked)
        assert set(asked.values()) == {1}, asked

    run(scenario, config=config)


def test_index_is_asked_for_once_until_there_is_news():
    async def scenario(ctx, world):
        world.fetch_delay, world.lanes = 50, 64
        await world.connect(ctx, 3)
        world.queues[3] = [wqe(length=n) for n in range(20)]
        await world.ring(ctx, 3)
        await world.until(ctx, lambda: len(world.jobs) == 20)
        await ctx.tick().repeat(300)
        # What the doorbell made it ask, and once more when that had all been asked for.
        assert [position for _, _, position in world.polled] == [0, 20]
        # The second went out before the last WQEs had come.
        asked = next(cycle for cycle, _, position in world.asked if position == 19)
        assert world.polled[1][0] < asked + 20
        # A doorbell that tells the index asks for nothing by itself.
        world.queues[3].append(wqe(length=7))
        world.polled.clear()
        await world.ring(ctx, 3, next_index=21)
        await world.until(ctx, lambda: len(world.jobs) == 21)
        await ctx.tick().repeat(200)
        assert [position for _, _, position in world.polled] == [21]

    run(scenario, config=WIDE)


def test_doorbell_of_a_blocked_qp_is_heard_when_it_is_woken():
    """The index that was read before it had nothing new."""

    async def scenario(ctx, world):
        await world.connect(ctx, 1)
        world.queues[1] = [wqe(WrOpcode.RDMA_READ, 9), wqe(length=2, fence=1)]
        await world.ring(ctx, 1)
        await world.until(ctx, lambda: len(world.jobs) == 1)
        await ctx.tick().repeat(300)
        polls = len(world.polled)
        world.queues[1].append(wqe(length=3))
        await world.ring(ctx, 1)
        await ctx.tick().repeat(100)
        assert len(world.polled) == polls
        await world.wake(ctx, 1, reads=1, wake_generation=1)
        await world.until(ctx, lambda: len(world.jobs) == 3)

    run(scenario)


def test_an_index_that_was_not_true_is_taken_back():
    """A driver says more than there is: what is there goes out, and what comes later too."""

    async def scenario(ctx, world):
        await world.connect(ctx, 1)
        world.queues[1] = [wqe(length=n) for n in (1, 2)]
        await world.ring(ctx, 1, next_index=9)
        await world.until(ctx, lambda: len(world.jobs) == 2)
        await ctx.tick().repeat(300)
        asked = len(world.asked)
        await ctx.tick().repeat(300)
        assert len(world.asked) == asked, "it is asked for over and over"
        world.queues[1].append(wqe(length=3))
        await world.ring(ctx, 1, next_index=3)
        await world.until(ctx, lambda: len(world.jobs) == 3)

    run(scenario)


def test_full_pool_is_waited_for_in_place():
    """Room that comes soon costs nothing: what was fetched behind is not fetched again."""

    async def scenario(ctx, world):
        await world.connect(ctx, 1)
        world.queues[1] = [wqe(length=1) for _ in range(20)]
        await world.ring(ctx, 1, next_index=20)
        await world.until(ctx, lambda: len(world.jobs) == 8)
        for n in range(12):
            await world.pop(ctx, 1)
            await world.until(ctx, lambda n=n: len(world.jobs) == 9 + n, limit=100)
        assert [position for _, _, position in world.asked] == list(range(20))

    run(scenario)


@pytest.mark.parametrize("same", [True, False])
def test_wqes_behind_each_other(same):
    """The next WQE's job follows its packet's check, of the same QP or another."""

    async def scenario(ctx, world):
        world.lanes, cycles = 64, []
        world.refuse = lambda job: cycles.append(world.cycle) or 0
        qps = (2,) if same else (2, 3)
        for qp in qps:
            await world.connect(ctx, qp)
            world.queues[qp] = [wqe(length=9) for _ in range(24)]
            await world.ring(ctx, qp, next_index=24)
        await world.until(ctx, lambda: len(cycles) >= 24)
        apart = [b - a for a, b in pairwise(cycles[8:24])]
        # The model answers after 8 cycles, which nobody waits for.
        assert sorted(apart)[8] == 4, apart

    run(scenario, config=WIDE)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
@pytest.mark.parametrize("longest", [60, 3000, 9000])
def test_every_wqe_goes_out_once_whatever_the_doorbells_say(seed, longest):
    """Posts, doorbells with and without an index, restarts and full pools at any moment; with short
    messages, and with such as few may be under way of."""
    rng = random.Random(seed)

    async def scenario(ctx, world):
        world.lanes, world.fetch_delay = rng.choice((2, 4)), rng.choice((5, 40))
        qps, posted, popped = (1, 2, 3), 0, {1: 0, 2: 0, 3: 0}
        for qp in qps:
            await world.connect(ctx, qp)
        for step in range(900 * slower()):
            qp = rng.choice(qps)
            if posted < 60 and rng.random() < 0.3:
                count = rng.randint(1, 4)
                world.queues[qp] += [wqe(length=rng.randrange(longest)) for _ in range(count)]
                posted += count
                await ctx.tick().repeat(rng.choice((1, 2, 30)))
                told = None if rng.random() < 0.5 else len(world.queues[qp])
                await world.ring(ctx, qp, next_index=told)
            entry = await world.oldest(ctx, qp)
            if entry is not None and entry.complete:
                assert entry.head == 100 + popped[qp] and entry.status == 0
                assert entry.length == world.queues[qp][popped[qp]]["length"]
                popped[qp] += 1
                await world.pop(ctx, qp)
            if step > 200 and sum(popped.values()) == posted >= 60:
                break
            await ctx.tick().repeat(rng.randint(1, 20))
        assert popped == {qp: len(world.queues[qp]) for qp in qps}, "a WQE is left behind"
        for qp in qps:
            sent = [(psn, length) for _opcode, psn, _offset, length in packets(world, qp)]
            assert [psn for psn, _length in sent] == [0x100 + n for n in range(len(sent))]
            assert [length for _psn, length in sent] == [
                min(MTU, one["length"] - at)
                for one in world.queues[qp]
                for at in range(0, max(1, one["length"]), MTU)
            ]

    run(scenario, deadline=60_000)


def test_work_posted_before_the_qp_is_ready_goes_out_when_it_is():
    async def scenario(ctx, world):
        await world.connect(ctx, 6, state=QpState.INIT)
        world.queues[6] = [wqe(length=1)]
        await world.ring(ctx, 6)
        await ctx.tick().repeat(200)
        assert not world.jobs
        await world.connect(ctx, 6)
        port = world.dut.scheduler.activate
        ctx.set(port.payload, {"qp": 6, "flags": 3, "data": 0})
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)
        await world.until(ctx, lambda: len(world.jobs) == 1)

    run(scenario)
