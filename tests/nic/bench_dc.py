"""Dynamic connections between two whole cards: every operation, one target after the other."""

import cocotb
import numpy as np

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus, WrOpcode
from sim.guest.verbs import FastMR, query_dct
from tests.nic.dc import Dc, all_free, three_targets_in_turn
from tests.nic.initiator import RIGHTS


async def every_operation(p):
    """SEND, WRITE, READ, both atomics, with immediate, with a key to invalidate: as on RC; the
    completions have the number of the target, or of the initiator."""
    (target,) = p.targets
    await target.post(*range(4))
    await p.qp.post_send(p.send(100, 700, 7))
    (wc,) = await p.good()
    assert (wc.wr_id, wc.qp_num, wc.src_qp, wc.opcode) == (7, p.qp.qp_num, 0, WcOpcode.SEND)
    (wc,) = await target.done()
    assert (wc.status, wc.opcode, wc.byte_len) == (WcStatus.SUCCESS, WcOpcode.RECV, 700)
    assert (wc.qp_num, wc.src_qp) == (target.qp.qp_num, 0)
    assert np.array_equal(target.mr.read(700), p.data[100:800])
    await p.qp.post_send(p.send(0, 5, opcode=WrOpcode.SEND_WITH_IMM, imm_data=0xDEADBEEF))
    await p.good()
    (wc,) = await target.done()
    assert (wc.wc_flags, wc.imm_data) == (WcFlags.WITH_IMM, 0xDEADBEEF)
    await p.qp.post_send(p.request(WrOpcode.RDMA_WRITE, 100, 5000, place=9000))
    await p.good()
    assert np.array_equal(target.mr.read(5000, 9000), p.data[100:5100])
    wr = p.request(WrOpcode.RDMA_WRITE_WITH_IMM, 0, 2048, place=4096, imm_data=0xBEEF)
    await p.qp.post_send(wr)
    await p.good()
    (wc,) = await target.done()
    assert (wc.opcode, wc.imm_data, wc.byte_len) == (WcOpcode.RECV_RDMA_WITH_IMM, 0xBEEF, 2048)
    await p.qp.post_send(p.request(WrOpcode.RDMA_READ, 20000, 3000, place=9000))
    await p.good()
    assert np.array_equal(p.mr.read(3000, 20000), p.data[100:3100])
    target.mr.write(np.frombuffer((41).to_bytes(8, "little"), np.uint8), 512)
    add = p.request(WrOpcode.ATOMIC_FETCH_AND_ADD, 30000, 8, place=512, compare_add=1)
    swap = p.request(WrOpcode.ATOMIC_CMP_AND_SWP, 30008, 8, place=512, compare_add=42, swap=7)
    await p.qp.post_send([add, swap])
    await p.good(2)
    found = [int.from_bytes(p.mr.read(8, at).tobytes(), "little") for at in (30000, 30008)]
    assert found == [41, 42]
    assert int.from_bytes(target.mr.read(8, 512).tobytes(), "little") == 7
    await p.well()


@cocotb.test()
async def t_d1_every_operation(dut):
    """T-D1."""
    p = await Dc.up(dut)
    await every_operation(p)
    await all_free(p)
    assert (await query_dct(p.targets[0].qp)).connects >= 1


@cocotb.test()
async def t_d2_three_targets_in_turn(dut):
    """T-D2: one initiator and three targets on two cards, each request to the next one: all arrive
    in order, and no connection is left."""
    await three_targets_in_turn(dut, 24)


@cocotb.test()
async def t_d21_loopback(dut):
    """T-D21: initiator and target of one card."""
    p = await Dc.up(dut, targets=0)
    q = await Dc.on(p.system, p.node, [p.node])
    await every_operation(q)
    await all_free(q)


@cocotb.test()
async def t_d1_send_with_invalidate(dut):
    """T-D1: SEND with a key to invalidate, of the target's protection domain."""
    p = await Dc.up(dut)
    (target,) = p.targets
    # A region of fast registration needs a queue pair that registers it: of the initiator itself.
    fast = await FastMR.create(p.pd, 2)
    await fast.map(4096)
    wr = fast.reg_wr(RIGHTS)
    await p.qp.post_send(wr)
    (wc,) = await p.done()
    assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, WcOpcode.REG_MR)
    assert (await query_dct(target.qp)).connects == 0  # what is local needs no connection
    await target.post(0)
    wr = p.send(5, 64, invalidate_rkey=fast.key, opcode=WrOpcode.SEND_WITH_INV)
    await p.qp.post_send(wr)
    (wc,) = await p.done()
    # It is no key of the target's.
    assert wc.status == WcStatus.REM_ACCESS_ERR
    (wc,) = await target.done()
    assert (wc.wr_id, wc.status) == (0, WcStatus.REM_INV_REQ_ERR)
    await p.well()
