"""Two whole cards: memory windows of types 1 and 2, bound, used, invalidated, refused."""

from itertools import count

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import (
    Access,
    ControlCommand,
    MwType,
    QpType,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from sim.bench.system import QpOptions, connect
from sim.guest.verbs import MR, MW, CommandError, FastMR, RecvWR, SendWR
from tests.nic.bench_nic import DATA, Pair
from tests.nic.card import CONFIG

REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE
WRITE, READ = WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ
OK, REFUSED = WcStatus.SUCCESS, WcStatus.REM_ACCESS_ERR
SIZE = 20_000
FIRST, LENGTH = 4_003, 9_001


async def up(dut, qp=None):
    """Two cards; the second has a region that peers have no right to, but may have windows."""
    p = await Pair.up(dut, config=CONFIG, qp=qp)
    mr = await MR.create(p.pds[1], SIZE, Access.LOCAL_WRITE | Access.MW_BIND, offset=77)
    return p, mr


async def posted(p, side, wr, qps=None):
    """The completion of one request."""
    await (qps or p.qps)[side].post_send(wr)
    (wc,) = await p.done(side, 1)
    return wc


async def bound(p, wr, qps=None):
    wc = await posted(p, 1, wr, qps)
    assert (wc.status, wc.opcode) == (OK, WcOpcode.BIND_MW)


async def accessed(p, opcode, key, addr, length, qps=None):
    """The status of a WRITE or READ of the first card under a key of the second one's."""
    wr = SendWR(1, opcode, [p.mrs[0].sge(0, length)])
    wr.set_wr_rdma(key, addr)
    return (await posted(p, 0, wr, qps)).status


async def refused(p, key, addr, length=1, opcodes=(WRITE, READ)):
    """Over a QP pair of their own, because it ends with that."""
    for opcode in opcodes:
        qps = await connect(p.nodes, p.pds, p.cqs)
        assert await accessed(p, opcode, key, addr, length, qps) is REFUSED, opcode


async def reached_alone(p, mr, window, first, qps=None):
    """All bytes of the window, and none of the region beside it."""
    before = mr.read(SIZE)
    p.mrs[0].write(DATA[first : first + window.length])
    assert await accessed(p, WRITE, window.key, window.iova, window.length, qps) is OK
    inside = slice(first, first + window.length)
    before[inside] = DATA[inside]
    assert np.array_equal(mr.read(SIZE), before)
    p.mrs[0].fill(0)
    assert await accessed(p, READ, window.key, window.iova, window.length, qps) is OK
    assert np.array_equal(p.mrs[0].read(window.length), DATA[inside])


async def bounds_hold(p, window):
    """Not a byte beyond either end."""
    begin, end = window.iova, window.iova + window.length
    await refused(p, window.key, end - 1, 2)
    await refused(p, window.key, (begin - 1) & (1 << 64) - 1, 2, [WRITE])
    await refused(p, window.key, end, 1, [READ])
    await refused(p, window.key, begin, window.length + 1, [WRITE])


@cocotb.test()
async def type_1(dut):
    """Bound, bound elsewhere, zero-based, unbound; the region cannot go while it is bound."""
    p, mr = await up(dut)
    mr.write(DATA[50_000 : 50_000 + SIZE])
    window = await MW.create(p.pds[1], MwType.TYPE_1)
    await refused(p, window.key, mr.iova)
    await bound(p, window.bind_wr(mr, FIRST, LENGTH, REMOTE))
    await reached_alone(p, mr, window, FIRST)
    await bounds_hold(p, window)
    try:
        await p.nodes[1].context.command(ControlCommand.DEREG_MR, mrn=mr.mrn)
        raise AssertionError("DEREG_MR of a region with a window")
    except CommandError:
        pass
    old, old_iova = window.key, window.iova
    await bound(p, window.bind_wr(mr, 5, 4_096, REMOTE | Access.ZERO_BASED))
    assert window.iova == 0
    await reached_alone(p, mr, window, 5)
    await bounds_hold(p, window)
    await refused(p, old, old_iova, 1, [READ])
    await refused(p, old, 0, 1, [WRITE])
    await bound(p, window.bind_wr(mr, FIRST, 8, Access.REMOTE_READ))
    await refused(p, window.key, window.iova, 1, [WRITE])
    await bound(p, window.bind_wr(mr, 0, 0, REMOTE))
    await refused(p, window.key, mr.iova)
    await window.close()
    await mr.close()


@cocotb.test()
@cocotb.parametrize(kind=["TYPE_2", "TYPE_2A"])
async def type_2(dut, kind):
    """For the QP that has bound it; gone with LOCAL_INV, SEND_WITH_INV and with its QP."""
    p, mr = await up(dut)
    window = await MW.create(p.pds[1], MwType[kind])
    await bound(p, window.bind_wr(mr, FIRST, LENGTH, REMOTE))
    await reached_alone(p, mr, window, FIRST)
    await refused(p, window.key, window.iova)  # of another QP
    # Invalidated by its own side, and then it may be bound again: to memory that the cache knows.
    key, iova = window.key, window.iova
    assert (await posted(p, 1, window.local_inv_wr())).status is OK
    await bound(p, window.bind_wr(mr, 1, LENGTH, REMOTE | Access.ZERO_BASED))
    await reached_alone(p, mr, window, 1)
    qps = await connect(p.nodes, p.pds, p.cqs)
    wr = SendWR(1, WrOpcode.LOCAL_INV, invalidate_rkey=window.key)
    assert (await posted(p, 1, wr, qps)).status is WcStatus.LOC_PROT_ERR
    # By the peer: the WRITE in front is executed, the READ behind is not.
    await p.qps[1].post_recv(RecvWR(5, []))
    wrs = [SendWR(n, opcode, [p.mrs[0].sge(0, 64)]) for n, opcode in ((1, WRITE), (3, READ))]
    for one in wrs:
        one.set_wr_rdma(window.key, 0)
    send = SendWR(2, WrOpcode.SEND_WITH_INV, [], invalidate_rkey=window.key)
    await p.qps[0].post_send([wrs[0], send, wrs[1]])
    (wc,) = await p.good(1)
    assert wc.wc_flags == WcFlags.WITH_INV and wc.invalidated_rkey == window.key
    assert [wc.status for wc in await p.done(0, 3)] == [OK, OK, REFUSED]
    # A QP takes its windows with it.
    p.qps = await connect(p.nodes, p.pds, p.cqs)
    await bound(p, window.bind_wr(mr, FIRST, LENGTH, REMOTE))
    await reached_alone(p, mr, window, FIRST)
    await p.qps[1].close()
    p.qps = await connect(p.nodes, p.pds, p.cqs)
    await refused(p, window.key, window.iova, 1, [READ])
    await refused(p, key, iova, 1, [WRITE])
    await bound(p, window.bind_wr(mr, FIRST, LENGTH, REMOTE))
    await window.close()
    await mr.close()


@cocotb.test()
async def what_is_refused(dut):
    """MW_BIND_ERR: bounds, rights, keys, domains, states; and the window is as it was."""
    p, mr = await up(dut)
    other_pd = await p.nodes[1].context.alloc_pd()
    plain = await MR.create(p.pds[1], SIZE, Access.LOCAL_WRITE)
    readable = await MR.create(p.pds[1], SIZE, Access.MW_BIND)
    foreign = await MR.create(other_pd, SIZE, Access.LOCAL_WRITE | Access.MW_BIND)
    second = await MW.create(p.pds[1], MwType.TYPE_2)
    apart = await MW.create(other_pd, MwType.TYPE_2)
    await bound(p, second.bind_wr(mr, FIRST, LENGTH, REMOTE))
    key, qps = second.key, p.qps
    one = await MW.create(p.pds[1], MwType.TYPE_1)
    bad = [
        one.bind_wr(mr, -1, 2, REMOTE),
        one.bind_wr(mr, 0, SIZE + 1, REMOTE),
        one.bind_wr(mr, SIZE, 1, REMOTE),
        one.bind_wr(mr, 1, (1 << 64) - 1, REMOTE),
        one.bind_wr(plain, 0, 1, REMOTE),
        one.bind_wr(readable, 0, 1, REMOTE),
        one.bind_wr(foreign, 0, 1, REMOTE),
        one.bind_wr(mr, 0, 1, REMOTE | Access.LOCAL_WRITE),
        one.bind_wr(mr, 0, 1, REMOTE | Access.MW_BIND),
        second.bind_wr(mr, 0, 1, REMOTE),  # bound
        apart.bind_wr(mr, 0, 1, REMOTE),
    ]
    for wr in bad:
        p.qps = await connect(p.nodes, p.pds, p.cqs)
        await p.qps[1].post_send([wr, SendWR(9, WrOpcode.SEND, [])])
        statuses = [wc.status for wc in await p.done(1, 2)]
        assert statuses == [WcStatus.MW_BIND_ERR, WcStatus.WR_FLUSH_ERR], wr
        await p.qps[1].close()
    second.key = key
    second.iova, second.length = mr.iova + FIRST, LENGTH
    await reached_alone(p, mr, second, FIRST, qps)
    # An SGE is no place for a window's key, on its own side either.
    p.qps = await connect(p.nodes, p.pds, p.cqs)
    await bound(p, one.bind_wr(mr, 0, 64, REMOTE))
    sge = mr.sge(0, 8)
    sge.lkey = one.key
    wr = SendWR(1, WRITE, [sge])
    wr.set_wr_rdma(p.mrs[0].rkey, p.mrs[0].iova)
    assert (await posted(p, 1, wr)).status is WcStatus.LOC_PROT_ERR


@cocotb.test()
async def one_chain(dut):
    """Posted at once: binds and invalidations take effect in their places among WRITEs and SENDs,
    and the atomics of the peer find the word of the window."""
    rights = Access.LOCAL_WRITE | REMOTE | Access.REMOTE_ATOMIC
    p, mr = await up(dut, QpOptions(access=rights))
    window = await MW.create(p.pds[1], MwType.TYPE_2)
    for round_ in range(4):
        start = 8 * round_ + (-mr.iova) % 8
        mr.write(bytes(8), start)
        rights = Access.REMOTE_ATOMIC | Access.REMOTE_READ
        bind = window.bind_wr(mr, start, 8, rights, wr_id=1)
        send = SendWR(2, WrOpcode.SEND, [mr.sge(0, 16)])
        await p.qps[0].post_recv(RecvWR(7, [p.mrs[0].sge(100, 16)]))
        await p.qps[1].post_send([bind, send])
        assert [wc.opcode for wc in await p.good(1, 2)] == [WcOpcode.BIND_MW, WcOpcode.SEND]
        await p.good(0)
        add = SendWR(3, WrOpcode.ATOMIC_FETCH_AND_ADD, [p.mrs[0].sge(0, 8)])
        add.set_wr_atomic(window.key, window.iova, 41 + round_)
        await p.qps[0].post_send(add)
        await p.good(0)
        assert mr.read(8, start).view("<u8")[0] == 41 + round_
        gone = window.local_inv_wr(wr_id=4)
        gone.send_flags |= SendFlags.FENCE
        await p.qps[0].post_recv(RecvWR(8, []))
        await p.qps[1].post_send([gone, SendWR(5, WrOpcode.SEND, [])])
        assert [wc.opcode for wc in await p.good(1, 2)] == [WcOpcode.LOCAL_INV, WcOpcode.SEND]
        await p.good(0)


async def written(p, mr, key, addr, first, data, qps):
    """Whether a WRITE of a UC queue pair has changed the region, in which only it may."""
    before = mr.read(SIZE)
    p.mrs[0].write(data)
    assert await accessed(p, WRITE, key, addr, len(data), qps) is OK  # that it has been sent
    await Timer(20, "us")  # what UC writes comes without a word
    after = before.copy()
    after[first : first + len(data)] = data
    assert not np.array_equal(before, after)
    found = mr.read(SIZE)
    assert np.array_equal(found, before) or np.array_equal(found, after)
    return np.array_equal(found, after)


@cocotb.test()
@cocotb.parametrize(kind=["TYPE_1", "TYPE_2", "TYPE_2A"])
async def of_uc(dut, kind):
    """A UC queue pair binds a window for its peer's WRITEs, and frees it. A WRITE that may not be
    changes nothing, and the next one that may be does."""
    p, mr = await up(dut, QpOptions(type=QpType.UC, access=REMOTE | Access.LOCAL_WRITE))
    window = await MW.create(p.pds[1], MwType[kind])
    sizes, turns = (8, LENGTH, 5_000), count()

    async def reached(n):
        first = 8 * next(turns)  # other bytes than before
        data = DATA[first : first + sizes[n]]
        return await written(p, mr, window.key, window.iova, FIRST, data, p.qps)

    assert not await reached(0)
    for n in range(len(sizes)):
        await bound(p, window.bind_wr(mr, FIRST, LENGTH, REMOTE))
        assert await reached(n)
        end = window.iova + LENGTH
        assert not await written(p, mr, window.key, end, FIRST + LENGTH, DATA[:1], p.qps)
        others = await connect(p.nodes, p.pds, p.cqs, QpOptions(type=QpType.UC, access=REMOTE))
        allowed = window.kind is MwType.TYPE_1
        there = window.iova
        assert await written(p, mr, window.key, there, FIRST, DATA[7:99], others) == allowed
        if window.kind is MwType.TYPE_1:
            await bound(p, window.bind_wr(mr, 0, 0, REMOTE))
        else:
            assert (await posted(p, 1, window.local_inv_wr())).status is OK
        assert not await reached(n)
    # What is refused ends the queue pair.
    wrs = [window.bind_wr(mr, SIZE, 1, REMOTE), SendWR(9, WrOpcode.SEND, [])]
    await p.qps[1].post_send(wrs)
    statuses = [wc.status for wc in await p.done(1, 2)]
    assert statuses == [WcStatus.MW_BIND_ERR, WcStatus.WR_FLUSH_ERR]


@cocotb.test()
async def fast_regions_of_uc(dut):
    """REG_MR and LOCAL_INV of a UC queue pair, posted at once with a SEND behind each."""
    p, _ = await up(dut, QpOptions(type=QpType.UC, access=REMOTE | Access.LOCAL_WRITE))
    fast = await FastMR.create(p.pds[1], 4)
    await fast.map(9_000, offset=77)
    rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
    for n in range(3):
        for wr, open_ in ((fast.reg_wr(rights), True), (fast.local_inv_wr(), False)):
            fast.fill(0)
            await p.qps[0].post_recv(RecvWR(8, [p.mrs[0].sge(0, 16)]))
            await p.qps[1].post_send([wr, SendWR(5, WrOpcode.SEND, [p.mrs[1].sge(0, 16)])])
            assert [wc.opcode for wc in await p.good(1, 2)] == [
                WcOpcode.REG_MR if open_ else WcOpcode.LOCAL_INV,
                WcOpcode.SEND,
            ]
            await p.good(0)
            data = DATA[n * 9_000 : n * 9_000 + 9_000]
            p.mrs[0].write(data)
            assert await accessed(p, WRITE, fast.key, fast.iova, 9_000) is OK
            await Timer(20, "us")
            wanted = data if open_ else np.zeros(9_000, np.uint8)
            assert np.array_equal(fast.read(9_000), wanted)
