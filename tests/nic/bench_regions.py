"""Two whole cards: regions that change (REREG_MR) are reached as they are now, and no further."""

import cocotb
import numpy as np

from hdl.abi.enums import Access, WcStatus, WrOpcode
from sim.bench.system import connect
from sim.guest.verbs import MR, SendWR
from tests.nic.bench_nic import DATA, Pair
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
WRITE, READ = WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ
SIZE = 9_000


async def accessed(p, opcode, key, addr, length):
    """The status of a WRITE or READ of the first card under a key of the second one's region."""
    qps = await connect(p.nodes, p.pds, p.cqs)
    wr = SendWR(1, opcode, [p.mrs[0].sge(0, length)])
    wr.set_wr_rdma(key, addr)
    await qps[0].post_send(wr)
    (wc,) = await p.done(0, 1)
    return wc.status


async def reached_alone(p, mr):
    """All of the region can be read and written, and not a byte beside it or across its ends."""
    end = mr.iova + mr.length
    for opcode in (WRITE, READ):
        assert await accessed(p, opcode, mr.rkey, mr.iova, mr.length) is WcStatus.SUCCESS
        for addr, length in ((mr.iova - 1, 1), (end, 1), (mr.iova - 1, mr.length), (end - 1, 2)):
            refused = await accessed(p, opcode, mr.rkey, addr, length)
            assert refused is WcStatus.REM_ACCESS_ERR, (opcode, addr - mr.iova, length)
    assert np.array_equal(mr.read(mr.length), p.mrs[0].read(mr.length))


async def gone(p, key, addr):
    """Neither WRITE nor READ passes with the key."""
    for opcode in (WRITE, READ):
        assert await accessed(p, opcode, key, addr, 1) is WcStatus.REM_ACCESS_ERR


@cocotb.test()
async def memory_is_replaced(dut):
    """Other memory of another size: the old address and the old pages are gone, also from the
    cache of translations. The key stays."""
    p = await Pair.up(dut, config=CONFIG)
    mr = await MR.create(p.pds[1], SIZE, RIGHTS, offset=33)
    await reached_alone(p, mr)
    for length, offset in ((5_000, 4_095), (1, 7)):
        old_key, old_iova = mr.rkey, mr.iova
        pages = list(mr.buffer.pages)
        await mr.reregister(length=length, offset=offset)
        mr.fill(0)
        p.mrs[0].write(DATA[length : length + length])
        await reached_alone(p, mr)
        assert mr.rkey == old_key
        await gone(p, old_key, old_iova)
        assert pages != list(mr.buffer.pages)
    await mr.close()


@cocotb.test()
async def rights_and_domain_are_replaced(dut):
    """Each flag alone: what was not named stays, what was is what counts."""
    p = await Pair.up(dut, config=CONFIG)
    mr = await MR.create(p.pds[1], SIZE, RIGHTS, offset=33)
    old = mr.rkey
    await mr.reregister(access=Access.LOCAL_WRITE | Access.REMOTE_READ)
    assert mr.rkey == old
    assert await accessed(p, READ, mr.rkey, mr.iova, SIZE) is WcStatus.SUCCESS
    assert await accessed(p, WRITE, mr.rkey, mr.iova, 1) is WcStatus.REM_ACCESS_ERR
    await mr.reregister(access=Access.LOCAL_WRITE)
    assert mr.rkey == 0
    await gone(p, mr.lkey, mr.iova)
    await mr.reregister(access=RIGHTS)

    other = await p.nodes[1].context.alloc_pd()
    old = mr.rkey
    await mr.reregister(pd=other)
    assert mr.rkey == old
    await gone(p, old, mr.iova)
    await mr.reregister(pd=p.pds[1])
    await reached_alone(p, mr)
    await mr.close()
