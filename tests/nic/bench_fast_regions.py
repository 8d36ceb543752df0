"""Two whole cards: regions that work requests register and invalidate."""

import cocotb
import numpy as np

from hdl.abi.enums import Access, SendFlags, WcFlags, WcOpcode, WcStatus, WrOpcode
from sim.bench.system import connect
from sim.guest.verbs import MR, FastMR, RecvWR, SendWR
from tests.nic.bench_nic import DATA, Pair
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
SIZE = 9_000
OK, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


async def up(dut):
    """Two cards; the second has a fast region with ``SIZE`` bytes in it, not registered."""
    p = await Pair.up(dut, config=CONFIG)
    fast = await FastMR.create(p.pds[1], 4)
    await fast.map(SIZE, offset=77)
    fast.write(DATA[50_000 : 50_000 + SIZE])
    return p, fast


def access(opcode, p, fast, *, number=1, key=None, length=SIZE):
    """A request to read or write the whole region, from or into the first card's."""
    wr = SendWR(number, opcode, [p.mrs[0].sge(0, length)])
    wr.set_wr_rdma(fast.key if key is None else key, fast.iova)
    return wr


async def statuses(p, side, count):
    return [(wc.wr_id, wc.status) for wc in await p.done(side, count)]


async def both_refused(p, fast, key=None):
    """Neither WRITE nor READ reaches the region."""
    before = fast.read(SIZE)
    for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
        qps = await connect(p.nodes, p.pds, p.cqs)
        await qps[0].post_send(access(opcode, p, fast, key=key))
        assert await statuses(p, 0, 1) == [(1, WcStatus.REM_ACCESS_ERR)]
    assert np.array_equal(fast.read(SIZE), before)


async def executed(p, wr, opcode, side=1, qps=None):
    """``wr`` ends well."""
    await (qps or p.qps)[side].post_send(wr)
    (wc,) = await p.good(side)
    assert (wc.wr_id, wc.opcode) == (wr.wr_id, opcode)


@cocotb.test()
async def register_use_and_invalidate(dut):
    """A region's key is good from REG_MR to LOCAL_INV, for as much as REG_MR says, and its pages
    are those of the last MAP_MR_SG."""
    p, fast = await up(dut)
    await both_refused(p, fast)
    old = fast.key
    await executed(p, fast.reg_wr(RIGHTS, wr_id=7), WcOpcode.REG_MR)
    assert fast.key != old and fast.key >> 8 == old >> 8
    await both_refused(p, fast, key=old)
    await p.qps[0].post_send(access(WrOpcode.RDMA_WRITE, p, fast))
    await p.good()
    assert np.array_equal(fast.read(SIZE), p.mrs[0].read(SIZE))
    await p.qps[0].post_send(access(WrOpcode.RDMA_READ, p, fast))
    await p.good()
    # Locally too: the region is the source of a WRITE of its own side.
    wr = SendWR(3, WrOpcode.RDMA_WRITE, [fast.sge(1, 5000)])
    wr.set_wr_rdma(p.mrs[0].rkey, p.mrs[0].iova + 2)
    await p.qps[1].post_send(wr)
    await p.good(1)
    assert np.array_equal(p.mrs[0].read(5000, 2), fast.read(5000, 1))
    await executed(p, fast.local_inv_wr(wr_id=8), WcOpcode.LOCAL_INV)
    await both_refused(p, fast)

    # New pages under a new key, for reading only.
    await fast.map(SIZE, offset=5)
    fast.write(DATA[70_000 : 70_000 + SIZE])
    await both_refused(p, fast)
    await executed(p, fast.reg_wr(Access.REMOTE_READ), WcOpcode.REG_MR)
    await p.qps[0].post_send(access(WrOpcode.RDMA_READ, p, fast))
    await p.good()
    assert np.array_equal(p.mrs[0].read(SIZE), DATA[70_000 : 70_000 + SIZE])
    qps = await connect(p.nodes, p.pds, p.cqs)
    await qps[0].post_send(access(WrOpcode.RDMA_WRITE, p, fast))
    assert await statuses(p, 0, 1) == [(1, WcStatus.REM_ACCESS_ERR)]
    # Pages that are mapped while the key is valid cannot be reached with it.
    await fast.map(SIZE)
    await both_refused(p, fast)
    await fast.close()


@cocotb.test()
async def the_peer_invalidates(dut):
    """SEND_WITH_INV, of one packet and of many: the receive CQE names the key, which is gone when
    it comes; the next one finds it gone."""
    p, fast = await up(dut)
    for length in (0, 40, 5000):
        await executed(p, fast.reg_wr(RIGHTS), WcOpcode.REG_MR)
        await p.qps[1].post_recv(RecvWR(5, [p.mrs[1].sge(0, 6000)]))
        send = SendWR(2, WrOpcode.SEND_WITH_INV, [p.mrs[0].sge(9, length)])
        send.invalidate_rkey = fast.key
        # The WRITE in front of it is executed, the one behind it is not.
        behind = access(WrOpcode.RDMA_WRITE, p, fast, number=3)
        p.mrs[0].write(DATA[length : length + SIZE])
        await p.qps[0].post_send([access(WrOpcode.RDMA_WRITE, p, fast), send, behind])
        (wc,) = await p.good(1)
        assert wc.wc_flags == WcFlags.WITH_INV and wc.invalidated_rkey == fast.key
        assert (wc.wr_id, wc.opcode, wc.byte_len) == (5, WcOpcode.RECV, length)
        assert await statuses(p, 0, 3) == [(1, OK), (2, OK), (3, WcStatus.REM_ACCESS_ERR)]
        assert np.array_equal(fast.read(SIZE), p.mrs[0].read(SIZE))
        assert np.array_equal(p.mrs[1].read(length), p.mrs[0].read(length, 9))
        await both_refused(p, fast)
        p.qps = await connect(p.nodes, p.pds, p.cqs)


@cocotb.test()
async def a_read_invalidates_its_own_sink(dut):
    """RDMA_READ_WITH_INV: the data are there, then the local key is gone."""
    p, _ = await up(dut)
    sink = await FastMR.create(p.pds[0], 4)
    await sink.map(SIZE, offset=3)
    for length in (0, 700, SIZE):
        read = SendWR(2, WrOpcode.RDMA_READ_WITH_INV, [sink.sge(0, length)])
        read.set_wr_rdma(p.mrs[1].rkey, p.mrs[1].iova + 1)
        reg = sink.reg_wr(Access.LOCAL_WRITE, wr_id=1)
        read.sg, read.invalidate_rkey = [sink.sge(0, length)], sink.key
        p.mrs[1].write(DATA[:SIZE], 1)
        sink.write(bytes(SIZE))
        # A registration behind its fence finds the region free again.
        again = sink.reg_wr(Access.LOCAL_WRITE, wr_id=3)
        again.send_flags |= SendFlags.FENCE
        await p.qps[0].post_send([reg, read, again])
        found = await p.good(0, 3)
        assert [wc.opcode for wc in found] == [WcOpcode.REG_MR, WcOpcode.RDMA_READ, WcOpcode.REG_MR]
        assert np.array_equal(sink.read(length), DATA[:length])
        await executed(p, sink.local_inv_wr(), WcOpcode.LOCAL_INV, side=0)
        wr = SendWR(4, WrOpcode.RDMA_WRITE, [sink.sge(0, 8)])
        wr.set_wr_rdma(p.mrs[1].rkey, p.mrs[1].iova)
        await p.qps[0].post_send(wr)
        assert await statuses(p, 0, 1) == [(4, WcStatus.LOC_PROT_ERR)]
        p.qps = await connect(p.nodes, p.pds, p.cqs)


@cocotb.test()
async def one_chain(dut):
    """LOCAL_INV, REG_MR and a SEND posted at once behind WRITEs and READs, many times: each takes
    effect in its place, and the CQEs come in order, of those that are signalled."""
    p, fast = await up(dut)
    await executed(p, fast.reg_wr(RIGHTS), WcOpcode.REG_MR)
    for round_ in range(6):
        wrs = []
        for number, opcode in enumerate((WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE)):
            wr = SendWR(number, opcode, [fast.sge(0, SIZE)], SendFlags.FENCE)
            wr.set_wr_rdma(p.mrs[0].rkey, p.mrs[0].iova + 10_000 * number)
            wrs.append(wr)
        p.mrs[0].write(DATA[round_ : round_ + SIZE])
        wrs += [fast.local_inv_wr(wr_id=2), fast.reg_wr(RIGHTS, wr_id=3)]
        send = SendWR(4, WrOpcode.SEND, [fast.sge(0, SIZE)])
        await p.qps[0].post_recv(RecvWR(6, [p.mrs[0].sge(30_000, SIZE)]))
        await p.qps[1].post_send([*wrs, send])
        assert await statuses(p, 1, 3) == [(2, OK), (3, OK), (4, OK)]
        await p.good(0)
        for offset in (10_000, 30_000):
            assert np.array_equal(p.mrs[0].read(SIZE, offset), DATA[round_ : round_ + SIZE])
    for queue in (p.qps[1].sq, p.qps[0].rq):
        assert not queue.pending


async def local_refused(p, wr, status, side=1):
    """The request fails, what is behind it is flushed, the QP is gone; another one takes over."""
    qps = await connect(p.nodes, p.pds, p.cqs)
    await qps[side].post_send([wr, SendWR(99, WrOpcode.SEND, [])])
    assert await statuses(p, side, 2) == [(wr.wr_id, status), (99, FLUSHED)]


@cocotb.test()
async def what_is_refused(dut):
    """Keys of other regions, PDs and times; registrations of regions that are not free."""
    p, fast = await up(dut)
    user = await MR.create(p.pds[1], 4096, RIGHTS)
    other_pd = await p.nodes[1].context.alloc_pd()
    foreign = await FastMR.create(other_pd, 4)
    await foreign.map(SIZE)
    await executed(p, fast.reg_wr(RIGHTS), WcOpcode.REG_MR)
    keys = [user.rkey, foreign.key, fast.key ^ 1, 0xFFFF_FF00, 0]
    for key in keys:
        wr = SendWR(1, WrOpcode.LOCAL_INV, invalidate_rkey=key)
        await local_refused(p, wr, WcStatus.LOC_PROT_ERR)
    registrations = [
        fast.reg_wr(RIGHTS, new_tag=False),  # valid already
        foreign.reg_wr(RIGHTS),
        fast.reg_wr(Access.REMOTE_WRITE, new_tag=False),
    ]
    for mrn, key in ((user.mrn, user.rkey), (fast.mrn, fast.key + 256), (0xFFFF_FFFF, fast.key)):
        wr = SendWR(1, WrOpcode.REG_MR)
        wr.set_wr_reg(mrn, key, RIGHTS)
        registrations.append(wr)
    for wr in registrations:
        await local_refused(p, wr, WcStatus.MW_BIND_ERR)
    for key in keys:
        qps = await connect(p.nodes, p.pds, p.cqs)
        await qps[1].post_recv([RecvWR(5, [p.mrs[1].sge(0, 64)]), RecvWR(6, [])])
        send = SendWR(2, WrOpcode.SEND_WITH_INV, [p.mrs[0].sge(0, 64)], invalidate_rkey=key)
        p.mrs[1].fill(0)
        await qps[0].post_send(send)
        assert await statuses(p, 0, 1) == [(2, WcStatus.REM_ACCESS_ERR)]
        assert await statuses(p, 1, 2) == [(5, WcStatus.REM_INV_REQ_ERR), (6, FLUSHED)]
        assert not p.mrs[1].read(64).any(), "a message that is refused is not delivered"
    for key in keys[:3]:
        read = SendWR(3, WrOpcode.RDMA_READ_WITH_INV, [user.sge(0, 64)], invalidate_rkey=key)
        read.set_wr_rdma(p.mrs[0].rkey, p.mrs[0].iova)
        await local_refused(p, read, WcStatus.LOC_PROT_ERR)
    # After all that the key is as good as before, and may be invalidated twice.
    p.qps = await connect(p.nodes, p.pds, p.cqs)
    await p.qps[0].post_send(access(WrOpcode.RDMA_WRITE, p, fast))
    await p.good()
    for _ in range(2):
        await executed(p, fast.local_inv_wr(), WcOpcode.LOCAL_INV)
    await both_refused(p, fast)
