"""The requester of services without answers: a WQE ends when its last packet is on its way."""

import random
from dataclasses import replace

import pytest

from hdl.abi.enums import QpType, WcStatus, WrOpcode
from tests.transport.send_side import CONFIG, run, wqe
from tests.transport.test_request_keys import KeyWorld, bind_mw, local_inv, reg_mr

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


@pytest.mark.parametrize("late", ["delay", "sending"])
@pytest.mark.parametrize("length", [0, MTU, MTU + 1, 5 * MTU])
def test_uc_wqe_is_complete_when_its_last_packet_has_gone(length, late):
    async def scenario(ctx, world):
        setattr(world, late, 200)
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


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("make", [reg_mr, bind_mw, local_inv])
def test_requests_without_packets(make, allowed):
    """They end in their places among WQEs of UC. One that is refused ends the QP: those in front
    of it have gone out, and the one behind is flushed."""

    async def scenario(ctx, world):
        world.allowed, world.sending = allowed, 60
        await world.connect(ctx, 2, psn=7, type=QpType.UC, binds=1)
        world.queues[2] = [wqe(length=3 * MTU), make(), wqe(length=1)]
        await world.ring(ctx, 2)
        refused = WcStatus.LOC_PROT_ERR if make is local_inv else WcStatus.MW_BIND_ERR
        ends = [0, 0, 0] if allowed else [0, refused, WcStatus.WR_FLUSH_ERR]
        found = await finished(ctx, world, 2, 1)
        if make is local_inv:  # it waits for the end of what is in front of it
            assert not world.changes
            await world.wake(ctx, 2, position=1, psn=10, wake_generation=1)
        found += await finished(ctx, world, 2, 2)
        assert found == list(enumerate(ends))
        # 3 packets, one behind them if all went well: the request between has no PSN
        assert [job.header.psn for job in world.jobs] == [7, 8, 9, 10][: 3 + allowed]
        assert len(world.changes) == 1

    run(scenario, world=KeyWorld)


@pytest.mark.parametrize("which", [0, 2, 4])
def test_payload_that_cannot_be_read_ends_its_wqe(which):
    """Whichever packet it is of: an error, once, and the WQEs behind it are flushed. A QP beside it
    goes on, and so does this one's next life at the same positions."""

    async def scenario(ctx, world):
        world.sending = 60
        world.spoil = lambda job: job.qp == 2 and job.header.psn == which
        for qp in (2, 3):
            await world.connect(ctx, qp, psn=0, type=QpType.UC)
            world.queues[qp] = [wqe(length=5 * MTU), wqe(length=9)]
            await world.ring(ctx, qp)
        first, second = await finished(ctx, world, 2, 2)
        assert first == (0, WcStatus.GENERAL_ERR)
        assert second in ((1, 0), (1, WcStatus.WR_FLUSH_ERR)), "it may have gone out before"
        assert await finished(ctx, world, 3, 2) == [(0, 0), (1, 0)]
        world.queues[2].append(wqe(length=9))
        await world.ring(ctx, 2)
        assert await finished(ctx, world, 2, 1) == [(2, WcStatus.WR_FLUSH_ERR)]
        # As behind a queue reset: all begins at 0 again.
        world.spoil = None
        world.queues[2] = [wqe(length=5 * MTU), wqe(length=9)]
        await world.program(ctx, world.dut.fetch, 2)
        await world.connect(ctx, 2, psn=0, type=QpType.UC)
        await world.ring(ctx, 2)
        assert await finished(ctx, world, 2, 2) == [(0, 0), (1, 0)]

    run(scenario)


@pytest.mark.parametrize("how", ["spoiled", "refused"])
def test_wqes_of_several_qps_that_fail_at_once(how):
    """Packets of WQEs that have failed wait for their way while the places of these WQEs in the
    outstanding table are other QPs' already: they end none of those."""
    late, length, victims = 1500, 8 * MTU, (2, 3, 6)  # in two turns each, one QP after the other

    async def scenario(ctx, world):
        def spoil(job):
            psn = job.header.psn
            world.sending = 40 if job.qp in victims and psn < 4 else late
            if job.qp in victims:
                return how == "spoiled" and psn == 0
            return psn == 15  # the last packet of the second WQE

        world.spoil, world.delay, world.most = spoil, 400, 32
        if how == "refused":
            bad = WcStatus.LOC_PROT_ERR
            world.refuse = lambda job: bad if job.qp in victims and job.header.psn == 1 else 0
        for number, qp in enumerate((*victims, 4, 5)):
            await world.connect(ctx, qp, psn=0, type=QpType.UC, function=1 + number % 2)
        for qp in victims:
            world.queues[qp] = [wqe(length=length)]
            await world.ring(ctx, qp)
        ends = WcStatus.GENERAL_ERR if how == "spoiled" else WcStatus.LOC_PROT_ERR
        for qp in victims:
            assert await finished(ctx, world, qp, 1) == [(0, ends)]
        assert len(world.handed) >= 12, "the first is on its way to its end"
        for qp in (4, 5):
            world.queues[qp] = [wqe(length=length), wqe(length=length)]
            await world.ring(ctx, qp)
        wanted = [(0, 0), (1, WcStatus.GENERAL_ERR)]
        for qp in (4, 5):
            assert await finished(ctx, world, qp, 2) == wanted
        # The next lives of those that failed, at the same positions, are sound.
        world.spoil = world.refuse = None
        world.sending = 20
        for qp in victims:
            await world.program(ctx, world.dut.fetch, qp)
            await world.connect(ctx, qp, psn=0, type=QpType.UC)
            await world.ring(ctx, qp)
            assert await finished(ctx, world, qp, 1) == [(0, 0)]

    run(scenario, deadline=60_000, config=replace(CONFIG, outstanding=4))


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
@pytest.mark.parametrize("late", [False, True])
def test_uc_ends_in_order_whatever_is_refused(seed, late):
    """QPs of both kinds, messages of any length, some packets refused, or ``late``, as their
    payload cannot be read: each WQE ends once, in its order, with its own status; behind the first
    that fails with another one than SUCCESS."""
    rng = random.Random(seed)
    types = {2: QpType.UC, 3: QpType.RC, 4: QpType.UC}
    lengths = {qp: [rng.choice((0, 9, MTU, 3 * MTU, 9 * MTU)) for _ in range(12)] for qp in types}
    bad = {qp: rng.randrange(6, 20) for qp in types}

    async def scenario(ctx, world):
        def wrong(job):
            return job.offset == 0 and bad[job.qp] == job.header.psn - 0x100

        failure = WcStatus.GENERAL_ERR if late else WcStatus.LOC_PROT_ERR
        if late:
            world.spoil = wrong
        else:
            world.refuse = lambda job: failure if wrong(job) else 0
        for qp, type_ in types.items():
            await world.connect(ctx, qp, type=type_)
            world.queues[qp] = [wqe(length=length) for length in lengths[qp]]
            await world.ring(ctx, qp)
        for qp in (2, 4):
            psn, status = 0, []
            for length in lengths[qp]:
                status.append(failure if psn == bad[qp] else 0)
                psn += max(1, -(-length // MTU))
            found = await finished(ctx, world, qp, len(lengths[qp]))
            assert [position for position, _ in found] == list(range(len(lengths[qp])))
            broken = status.index(failure) if any(status) else len(status)
            assert [one for _, one in found[:broken]] == [0] * broken
            if any(status):
                assert found[broken][1] == failure
                assert late or found[-1][1] == WcStatus.WR_FLUSH_ERR

    run(scenario, deadline=60_000, config=replace(CONFIG, outstanding=64))


PEER = int.from_bytes(bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 2)), "little")
PEER6 = int.from_bytes(b"\xfd" + bytes(14) + b"\x02", "little")
QPN, QKEY, OWN_QKEY = 0x00BEEF, 0x1234, 0x80010000


def datagram(*, length=MTU, qkey=QKEY, **where):
    """A WQE to a QP of the peer at GID 1."""
    to = {"pd": 5, "gid_index": 1, "flow_label": 0xABCDE, "traffic_class": 0x2C, "sl": 3}
    to |= {"dgid": PEER, "hop_limit": 9, "dmac": 0x0605_0403_0201}
    address = 0xFF << 24 | QPN | qkey << 32  # the guest's high bits of a QPN mean nothing
    return wqe(length=length, remote_addr=address, destination=to | where)


async def datagram_qp(ctx, world, type_=QpType.UD):
    """QP 2 is one for datagrams; GID 0 is an IPv6 address, GID 1 an IPv4 address."""
    gids = world.dut.requester.gids
    ctx.set(gids[0], {"valid": 1})
    ctx.set(gids[1], {"valid": 1, "ipv4": 1})
    await world.connect(
        ctx, 2, type=type_, psn=0xFFFFFF, path_mtu=5, pd=5, qpn=0x20002, qkey=OWN_QKEY, function=1
    )


@pytest.mark.parametrize("type_", [QpType.UD, QpType.GSI])
@pytest.mark.parametrize("qkey,sent", [(QKEY, QKEY), (1 << 31, OWN_QKEY), (0x80010001, OWN_QKEY)])
def test_datagram_goes_where_its_wqe_says(type_, qkey, sent):
    async def scenario(ctx, world):
        await datagram_qp(ctx, world, type_)
        world.queues[2] = [
            datagram(qkey=qkey),
            datagram(length=0, gid_index=0, dgid=PEER6, flow_label=0),
        ]
        await world.ring(ctx, 2)
        assert await finished(ctx, world, 2, 2) == [(0, 0), (1, 0)]
        first, second = (job.header for job in world.jobs)
        assert [(h.opcode, h.psn, h.dest_qp) for h in (first, second)] == [
            (0x64, 0xFFFFFF, QPN),
            (0x64, 0, QPN),
        ]
        assert (first.va >> 32, first.va & 0xFFFFFF) == (sent, 0x20002)
        av = first.av
        assert (av.sgid_index, av.dgid, av.dmac) == (1, PEER, 0x0605_0403_0201)
        assert (av.traffic_class, av.flow_label, av.hop_limit, av.sl) == (0x2C, 0xABCDE, 9, 3)
        assert av.udp_source >= 0xC000 and second.av.udp_source != av.udp_source
        assert (second.av.sgid_index, second.av.dgid) == (0, PEER6)

    run(scenario)


@pytest.mark.parametrize(
    "bad,status",
    [
        (datagram(pd=6), WcStatus.LOC_QP_OP_ERR),
        (datagram(pd=5 | 1 << 16), WcStatus.LOC_QP_OP_ERR),
        (datagram(gid_index=2), WcStatus.LOC_QP_OP_ERR),
        (datagram(gid_index=255), WcStatus.LOC_QP_OP_ERR),
        (datagram(gid_index=0), WcStatus.LOC_QP_OP_ERR),  # of the other address family
        (datagram(dgid=PEER6), WcStatus.LOC_QP_OP_ERR),
        (datagram(length=4097), WcStatus.LOC_LEN_ERR),
        (datagram() | {"opcode": int(WrOpcode.RDMA_WRITE)}, WcStatus.LOC_QP_OP_ERR),
        (datagram() | {"opcode": int(WrOpcode.RDMA_READ)}, WcStatus.LOC_QP_OP_ERR),
    ],
)
def test_datagram_that_cannot_go(bad, status):
    async def scenario(ctx, world):
        await datagram_qp(ctx, world)
        world.queues[2] = [datagram(length=4096), bad, datagram()]
        await world.ring(ctx, 2)
        wanted = [(0, 0), (1, status), (2, WcStatus.WR_FLUSH_ERR)]
        assert await finished(ctx, world, 2, 3) == wanted
        assert len(world.handed) == 1

    run(scenario)
