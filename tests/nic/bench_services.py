"""Two whole cards whose QPs get no answers: UC."""

import os
import random

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, QpType, WcFlags, WcOpcode, WcStatus, WrOpcode
from hdl.config import NicConfig
from sim.bench.system import QpOptions, connect
from sim.guest.verbs import SGE, RecvWR, SendWR
from sim.models.impairments import Impairments
from tests.nic.bench_nic import Pair, gathered, pieces

CONFIG = NicConfig(width=int(os.environ.get("ROCINANTE_WIDTH", "64")))
UC = QpOptions(type=QpType.UC, mtu=Mtu.MTU_1024, psns=(0xFFFFF0, 0xFFFFFE))
SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)


async def gained(node, before):
    """What has been counted since ``before``, without what did not change."""
    after = await node.counters()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@cocotb.test()
async def uc_operations(dut):
    """SEND and WRITE with and without immediate, both ways, at lengths around beat and packet."""
    p = await Pair.up(dut, qp=UC)
    p.system.stop_firmware()
    rng, beat = random.Random(4), CONFIG.width // 8
    before = [await node.counters() for node in p.nodes]
    for number, length in enumerate((0, 1, beat + 1, 1023, 1024, 1025, 3 * 1024, 9_001)):
        for opcode in (*SENDS, WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM):
            side = number % 2
            mine, theirs = p.mrs[side], p.mrs[1 - side]
            mine.write(np.frombuffer(rng.randbytes(20_000), np.uint8))
            sges = pieces(rng, mine, length, rng.choice((1, 3)))
            sent, offset, imm = gathered(mine, sges), rng.randrange(1, 99), rng.getrandbits(32)
            sink = [theirs.sge(offset, length)]
            takes = opcode != WrOpcode.RDMA_WRITE
            if takes:
                await p.qps[1 - side].post_recv(RecvWR(number, sink))
            wr = SendWR(77 + number, opcode, sges, imm_data=imm)
            if opcode not in SENDS:
                wr.set_wr_rdma(theirs.rkey, theirs.iova + offset)
            await p.qps[side].post_send(wr)
            (wc,) = await p.good(side)
            assert wc.wr_id == 77 + number
            if takes:
                (got,) = await p.good(1 - side)
                assert (got.byte_len, got.wr_id) == (length, number)
                assert (got.qp_num, got.src_qp) == (p.qps[1 - side].qp_num, p.qps[side].qp_num)
                wanted = WcOpcode.RECV if opcode in SENDS else WcOpcode.RECV_RDMA_WITH_IMM
                with_imm = opcode != WrOpcode.SEND
                assert got.opcode == wanted
                assert got.wc_flags == (WcFlags.WITH_IMM if with_imm else WcFlags(0))
                assert not with_imm or got.imm_data == imm
            else:
                await Timer(3, "us")
            assert np.array_equal(theirs.read(length, offset), sent), (opcode, length)
    for node, old in zip(p.nodes, before, strict=True):
        change = await gained(node, old)
        assert not {"acks_sent", "naks_sent", "out_of_sequence", "qp_state"} & set(change), change


@cocotb.test()
async def uc_is_no_rc(dut):
    """READ is none of its operations; a bad key of its own ends a WQE; a bad one of the peer's, or
    no receive WQE, is dropped there and counted, and the QP goes on."""
    p = await Pair.up(dut, qp=UC)
    ok = p.mrs[0].sge(0, 3000)
    for wr, status in (
        (p.request(WrOpcode.RDMA_READ, [ok]), WcStatus.LOC_QP_OP_ERR),
        (
            p.request(WrOpcode.SEND, [SGE(p.mrs[0].iova, 9, p.mrs[0].lkey ^ 1)]),
            WcStatus.LOC_PROT_ERR,
        ),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs, UC)
        await qps[0].post_send([wr, p.request(WrOpcode.SEND, [ok], number=2)])
        found = await p.done(count=2)
        assert [wc.status for wc in found] == [status, WcStatus.WR_FLUSH_ERR]
    before = await p.nodes[1].counters()
    bad = p.request(WrOpcode.RDMA_WRITE_WITH_IMM, [ok])
    bad.set_wr_rdma(p.mrs[1].rkey ^ 1, p.mrs[1].iova)
    beyond = p.request(WrOpcode.RDMA_WRITE, [ok], offset=p.mrs[1].length - 2999)
    untouched = p.mrs[1].read(p.mrs[1].length)
    for wr in (bad, beyond, p.request(WrOpcode.SEND, [ok])):
        await p.qps[0].post_send(wr)
        await p.good()
        await Timer(5, "us")
    assert np.array_equal(p.mrs[1].read(p.mrs[1].length), untouched)
    change = await gained(p.nodes[1], before)
    assert change["resp_remote_access_errors"] == 2 and change["out_of_buffer"] == 1
    assert change["rx_packets"] == 9 and change["out_of_sequence"] == 6
    await p.qps[1].post_recv(RecvWR(5, [p.mrs[1].sge(7, 3000)]))
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [ok]))
    (got,) = await p.good(1)
    assert got.wr_id == 5 and np.array_equal(p.mrs[1].read(3000, 7), p.mrs[0].read(3000))


@cocotb.test()
@cocotb.parametrize(bad=["every=5", "loss=15%", "reorder=2,overtaken=20%", "duplicate=20%"])
async def uc_on_a_bad_network(dut, bad):
    """What arrives is whole and in order, what is broken takes no receive WQE with it, and nothing
    is sent again."""
    p = await Pair.up(dut, qp=UC)
    rng, count, size = random.Random(bad), 40, 4096
    lengths = [rng.choice((1, 900, 1024, 2500, 4000)) for _ in range(count)]
    for number in range(30):
        sink = [p.mrs[1].sge(number * size % (p.mrs[1].length - size), size)]
        await p.qps[1].post_recv(RecvWR(number, sink))
    before = [await node.counters() for node in p.nodes]
    p.system.testbench.wires[0].impair(Impairments.parse(f"{bad},seed=3"))
    for number, length in enumerate(lengths):
        wr = SendWR(number, WrOpcode.SEND_WITH_IMM, [p.mrs[0].sge(number, length)], imm_data=number)
        await p.qps[0].post_send(wr)
    found = []
    while len(found) < count:
        found += await p.good()
    assert [wc.wr_id for wc in found] == list(range(count))
    await Timer(20, "us")
    got = []
    while wcs := await p.cqs[1].poll(16):
        got += wcs
    changes = [await gained(node, old) for node, old in zip(p.nodes, before, strict=True)]
    assert [wc.wr_id for wc in got] == list(range(len(got))), "each takes the next one"
    assert len(got) >= 5 and all(wc.status == WcStatus.SUCCESS for wc in got)
    for wc in got:
        length, at = lengths[wc.imm_data], wc.wr_id * size % (p.mrs[1].length - size)
        assert wc.byte_len == length
        if len(got) <= p.mrs[1].length // size:
            assert np.array_equal(p.mrs[1].read(length, at), p.mrs[0].read(length, wc.imm_data))
    packets = sum(max(1, -(-length // 1024)) for length in lengths)
    assert changes[0]["tx_packets"] == changes[0]["requests_sent"] == packets
    if bad != "duplicate=20%" and "reorder" not in bad:
        arrived = [wc.imm_data for wc in got]
        assert arrived == sorted(arrived)
        assert changes[1]["out_of_sequence"] and len(got) < count
