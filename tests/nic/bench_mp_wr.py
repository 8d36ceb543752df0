"""Receive requests that take several packets, between two whole cards."""

import json
import random
from dataclasses import replace
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import (
    Mtu,
    QpAttrMask,
    QpState,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from hdl.wire.opcodes import Operation
from sim.guest.verbs import SGE, WC, FastMR, QPAttr, RecvWR, SendWR
from sim.models.impairments import Impairments
from tests.mp_wr_source import CONSUMED, Completed
from tests.nic.mp_wr import FIRST, RIGHTS, WAIT_NS, MpWrPair, Wire
from tests.slow import QUICK

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "mp_wr.json").read_text())


def vector(name, qp):
    """Completions of the specification's examples, by their place."""
    found = {int(n): WC.unpack(bytes.fromhex(octets)) for n, octets in VECTORS[name].items()}
    return {n: replace(Completed.of(wc), qp=qp) for n, wc in found.items()}


async def example(p, name, lengths, first=0xA0):
    """Messages of these lengths: what completes is what the model and the example say."""
    await p.send(lengths)
    found = await p.check()
    for n, expected in vector(name, p.pairs[0][1].qp_num).items():
        assert found[n] == replace(expected, wr_id=expected.wr_id - first + 0xA0), (name, n)


@cocotb.test()
async def t_m1_example_a(dut):
    """T-M1, example A, case a: 128 messages of 512 bytes take a request. The next one finds none,
    and comes when there is one."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post()
    await example(p, "a", [512] * 128)
    await p.pairs[0][0].post_send(p.request(0, 512))
    await Timer(30, "us")
    assert (await p.nodes[1].counters())["out_of_buffer"] > 0
    await p.post()
    p.source.message(p.bytes(0, 512), p.mtu, p.pairs[0][1].qp_num)
    await p.good()
    await p.check()
    await p.well()


@cocotb.test()
async def t_m1_example_a_long(dut):
    """T-M1, example A, cases b and c: a message of 12,000 bytes is three pieces; the sixth goes on
    in the next request."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post(2)
    await example(p, "c", [12000] * 6)
    assert vector("b", 0) == {n: vector("c", 0)[n] for n in range(3)}
    assert p.source.at == 8192
    await p.well()


@cocotb.test()
async def t_m1_example_a_segments(dut):
    """T-M1, example A, case d: 700 bytes are two segments."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post(2)
    await example(p, "d", [700] * 65)
    await p.well()


@cocotb.test()
async def t_m1_example_a_closes(dut):
    """T-M1, example A, case e: a packet that does not fit closes the request."""
    p = await MpWrPair.up(dut, 65536, 512)
    await p.post(2)
    await example(p, "e", [4096] * 15 + [3500, 1024])
    await p.well()


@cocotb.test()
async def t_m1_example_b(dut):
    """T-M1, T-M15, example B: a message of 1 MiB is 256 pieces, and 256 messages of a byte each
    have a page of their own; the device reads a request once."""
    p = await MpWrPair.up(dut, 1 << 20, 4096, buffers=2)
    await p.post()
    await example(p, "B, one message", [1 << 20], 0xB0)
    await p.post()
    await p.send([1])
    p.spoil_requests()  # nobody reads it again
    await p.send([1] * 255)
    found = await p.check()
    for n, expected in vector("B, bytes", p.pairs[0][1].qp_num).items():
        assert found[n] == replace(expected, wr_id=FIRST + 1), n
    await p.well()


@cocotb.test()
async def t_m1_rnr_in_a_message(dut):
    """T-M1, M-19: the third packet finds no request: the message stays, and goes on with that
    packet when there is one."""
    p = await MpWrPair.up(dut, 8192, 4096)
    await p.post()
    qp = p.pairs[0][1].qp_num
    await p.pairs[0][0].post_send(p.request(0, 12000))
    assert p.source.message(p.bytes(0, 12000), p.mtu, qp) == 2
    found = await p.check()
    await Timer(30, "us")
    assert (await p.nodes[1].counters())["out_of_buffer"] > 0
    await p.post()
    p.source.packet(p.bytes(8192, 3808), qp)
    await p.good()
    found += await p.check()
    first = vector("rnr", qp)
    assert found == [first[0], first[1], replace(first[2], wr_id=FIRST + 1)]
    await p.well()


@cocotb.test()
async def t_m1_nothing(dut):
    """T-M1: a SEND of no bytes takes a segment, also the last one."""
    p = await MpWrPair.up(dut, 4096, 1024)
    await p.post(2)
    await p.send([0, 5, 0, 0, 0, 1024])
    await p.check()
    await p.well()


@cocotb.test()
async def t_m2_bad_network(dut):
    """T-M2: packets are lost, doubled and overtaken in both directions: each piece completes once,
    in order, and its bytes are right."""
    p = await MpWrPair.up(dut, 16384, 256, buffers=16, options={"mtu": Mtu.MTU_1024})
    for number, wire in enumerate(p.system.testbench.wires):
        bad = f"loss=5%,duplicate=8%,reorder=4,overtaken=10%,seed={number + 3}"
        wire.impair(Impairments.parse(bad))
    for _ in range(12):
        await p.post()
        await p.send([12000])
    await p.check()
    counters = await p.nodes[1].counters()
    assert counters["duplicate_request"] and counters["out_of_sequence"]
    await p.well()


@cocotb.test()
async def t_m2_each_packet_is_lost_or_doubled(dut):
    """T-M2, M-15, M-16: each packet of a message of 12,000 bytes comes twice, or too early."""
    p = await Wire.up(dut, 16384, 512)
    s = p.wire
    await p.post()
    for repeated in range(3):
        start = s.psn
        p.source.message(p.bytes(0, 12000), p.mtu, p.pairs[0][1].qp_num)
        packets = list(s.message(p.bytes(0, 12000)))
        for n, (opcode, body) in enumerate(packets):
            if n == repeated and n < 2:  # a gap, before the right one
                s.send(*packets[n + 1], psn=start + n + 1, ack_request=0)
                assert await s.answer() == (start + n, 0x60)
            s.send(opcode, body, psn=start + n, ack_request=0)
            if n == repeated:
                s.send(opcode, body, psn=start + n, ack_request=0)
                assert await s.answer() == (start + n, 0x1F)
        await s.quiet()
        s.psn = start + 3
        await p.post()
    await p.check()
    await p.well()


@cocotb.test()
async def t_m3_sent_again_from_its_start(dut):
    """T-M3: a requester that has missed an ACK in mid-message sends the message again from its
    beginning: nothing completes twice, and the position stays."""
    p = await Wire.up(dut, 16384, 512)
    s = p.wire
    await p.post()
    packets = list(s.message(p.bytes(0, 12000)))
    qp = p.pairs[0][1].qp_num
    for n in (0, 1, 0, 1, 0, 1, 2):
        s.send(*packets[n], psn=n)
    p.source.message(p.bytes(0, 12000), p.mtu, qp)
    s.psn = 3
    s.send(Operation.SEND_ONLY, p.bytes(77, 100))
    p.source.packet(p.bytes(77, 100), qp)
    await p.check()
    assert (await p.nodes[1].counters())["duplicate_request"] == 4
    await p.well()


@cocotb.test(skip=QUICK)
async def t_m4_longer_than_buffers(dut):
    """T-M4: a message of 1 MiB goes through requests of 64 KiB: 256 pieces, 16 with CONSUMED."""
    p = await MpWrPair.up(dut, 65536, 512, buffers=16)
    await p.post(16)
    await p.send([1 << 20])
    found = await p.check()
    assert len(found) == 256 and sum(bool(one.flags & CONSUMED) for one in found) == 16
    await p.well()


@cocotb.test()
async def t_m6_bad_page(dut):
    """T-M6, M-21: the second SGE's key is bad: the packet that reaches it completes with
    LOC_PROT_ERR, and what is open goes back with CONSUMED; the peer gets NAK 63h."""
    p = await MpWrPair.up(dut, 8192, 512, options={"mtu": Mtu.MTU_1024})
    good = p.sink.sge(0, 4096)
    requests = [
        RecvWR(FIRST, [good, SGE(good.addr + 4096, 4096, good.lkey ^ 5)]),
        RecvWR(FIRST + 1, [p.sink.sge(8192, 8192)]),
    ]
    await p.pairs[0][1].post_recv(requests)
    p.source.wrs.append(FIRST)
    await p.pairs[0][0].post_send([p.request(0, 4000), p.request(8, 1024), p.request(16, 24)])
    statuses = [wc.status for wc in await p.cqs[0].wait(3, timeout_ns=WAIT_NS)]
    assert statuses == [WcStatus.SUCCESS, WcStatus.REM_OP_ERR, WcStatus.WR_FLUSH_ERR]
    qp = p.pairs[0][1].qp_num
    p.source.message(p.bytes(0, 4000), p.mtu, qp)
    await p.check()
    bad, rest, other = await p.done(3)
    assert (bad.wr_id, bad.status, bad.wc_flags) == (FIRST, WcStatus.LOC_PROT_ERR, 0)
    assert (rest.wr_id, rest.status) == (FIRST, WcStatus.WR_FLUSH_ERR)
    assert (other.wr_id, other.status) == (FIRST + 1, WcStatus.WR_FLUSH_ERR)
    assert rest.wc_flags == other.wc_flags == CONSUMED
    await p.well()


@cocotb.test()
async def t_m7_other_lengths(dut):
    """T-M7, M-22: a request that is a byte short or long: LOC_LEN_ERR and CONSUMED, NAK 63h. Of
    three SGEs that are right together it is good, and pieces lie across them."""
    p = await MpWrPair.up(dut, 8192, 512, options={"mtu": Mtu.MTU_1024})
    await p.post(1, cuts=(1000, 1500))
    await p.send([3000, 1024, 7])
    await p.check()
    for wrong in (-1, 1):
        await p.again()
        await p.pairs[0][1].post_recv(
            [RecvWR(n, [p.sink.sge(0, 8192 + wrong)]) for n in (FIRST, FIRST + 1)]
        )
        await p.pairs[0][0].post_send(p.request(0, 100))
        (wc,) = await p.cqs[0].wait(1, timeout_ns=WAIT_NS)
        assert wc.status == WcStatus.REM_OP_ERR
        bad, other = await p.done(2)
        assert (bad.wr_id, bad.status) == (FIRST, WcStatus.LOC_LEN_ERR)
        assert (other.wr_id, other.status) == (FIRST + 1, WcStatus.WR_FLUSH_ERR)
        assert bad.wc_flags == other.wc_flags == CONSUMED
    await p.well()


@cocotb.test()
async def t_m10_write_with_immediate(dut):
    """T-M10: a WRITE with immediate among SENDs takes a segment in which nothing lies; byte_len is
    that of the WRITE, over several packets."""
    p = await MpWrPair.up(dut, 8192, 512, options={"mtu": Mtu.MTU_1024})
    await p.post(2)
    qp = p.pairs[0][1].qp_num
    await p.send([600])
    for length in (0, 3000):
        opcode = WrOpcode.RDMA_WRITE_WITH_IMM
        wr = p.request(0, length, opcode, imm_data=0xDEADBEEF)
        wr.set_wr_rdma(p.target.rkey, p.target.iova + 40)
        await p.pairs[0][0].post_send(wr)
        await p.good()
        p.source.packet(
            b"",
            qp,
            opcode=WcOpcode.RECV_RDMA_WITH_IMM,
            byte_len=length,
            flags=WcFlags.WITH_IMM,
        )
        assert np.array_equal(p.target.read(length, 40), p.data[:length])
    await p.send([512] * 20, at=2048)
    await p.check()
    await p.well()


@cocotb.test()
async def t_m11_send_with_invalidate(dut):
    """T-M11, M-24: the key is good until the last of three pieces, and bad behind it; one that
    nobody may invalidate makes the last piece complete in error."""
    p = await MpWrPair.up(dut, 8192, 512, options={"mtu": Mtu.MTU_1024})
    await p.post(2)
    ours, theirs = p.pairs[0]
    fast = await FastMR.create(p.pds[1], 2)
    await fast.map(4096)
    await theirs.post_send(fast.reg_wr(RIGHTS))
    await p.done(1)
    wr = p.request(5, 2500, WrOpcode.SEND_WITH_INV, invalidate_rkey=fast.key)
    await ours.post_send(wr)
    await p.good()
    p.source.message(p.bytes(5, 2500), p.mtu, theirs.qp_num, flags=WcFlags.WITH_INV)
    await p.check()
    wr = p.request(5, 2500, WrOpcode.SEND_WITH_INV, invalidate_rkey=p.target.rkey)
    await ours.post_send(wr)
    (wc,) = await p.cqs[0].wait(1, timeout_ns=WAIT_NS)
    assert wc.status == WcStatus.REM_ACCESS_ERR
    p.source.packet(p.bytes(5, 1024), theirs.qp_num, more=True)
    p.source.packet(p.bytes(1029, 1024), theirs.qp_num, more=True)
    await p.check()
    last, *rest = await p.done(3)
    assert (last.wr_id, last.status) == (FIRST, WcStatus.REM_INV_REQ_ERR)
    assert [(wc.wr_id, wc.status, wc.wc_flags) for wc in rest] == [
        (FIRST, WcStatus.WR_FLUSH_ERR, CONSUMED),
        (FIRST + 1, WcStatus.WR_FLUSH_ERR, CONSUMED),
    ]
    await p.well()


@cocotb.test()
async def t_m12_one_solicited_event(dut):
    """T-M12: a CQ that is armed for solicited completions has one event for a message of three
    pieces, with the last one; a closed request has none."""
    p = await MpWrPair.up(dut, 4096, 512, options={"mtu": Mtu.MTU_1024})
    await p.post(3)
    cq = p.cqs[1]
    await cq.req_notify(solicited_only=True)
    await p.send([3000, 1024])  # the second one closes the request
    await Timer(10, "us")
    assert cq.events == 0
    wr = p.request(0, 2500, send_flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
    await p.pairs[0][0].post_send(wr)
    p.source.message(p.bytes(0, 2500), p.mtu, p.pairs[0][1].qp_num)
    await p.good()
    await Timer(10, "us")
    assert cq.events == 1
    await p.check()


@cocotb.test()
async def t_m14_random(dut):
    """T-M14: random buffers, segments and lengths, with and without immediate."""
    rng = random.Random(5)
    p = await MpWrPair.up(dut, 4096, 64, buffers=8, options={"mtu": Mtu.MTU_1024})
    for align, segments in ((64, 77), (128, 32), (512, 13), (4096, 3)):
        await p.again(align * segments, align)
        room = 0
        for _ in range(25):
            opcode = rng.choice((WrOpcode.SEND, WrOpcode.SEND_WITH_IMM))
            length = rng.choice((0, 1, align, align + 1, 1024, rng.randrange(5000)))
            room += length + 1024
            while p.posted * p.buffer < room + p.buffer * 2 and len(p.source.wrs) < 6:
                await p.post()
            at = rng.randrange(1 << 16)
            flags = WcFlags.WITH_IMM if opcode == WrOpcode.SEND_WITH_IMM else 0
            if not p.can_take(length):
                break
            await p.pairs[0][0].post_send(p.request(at, length, opcode, imm_data=9))
            p.source.message(p.bytes(at, length), p.mtu, p.pairs[0][1].qp_num, flags=flags)
            await p.good()
        await p.check_last()
    await p.well()


@cocotb.test()
async def t_m16_reset(dut):
    """T-M16: RESET in the middle of a buffer: what is posted then begins at 0."""
    p = await MpWrPair.up(dut, 8192, 512, options={"mtu": Mtu.MTU_1024})
    await p.post(2)
    await p.send([700, 3000])
    await p.check()
    await p.restart()
    await p.post(2)
    await p.send([100, 5000, 4000])
    await p.check()
    await p.well()


@cocotb.test()
async def t_m20_stops_in_a_message(dut):
    """M-20: the sender fails in the middle of a message, and the receiver goes to ERR: what is
    open ends flushed, with CONSUMED, and then the others."""
    p = await MpWrPair.up(dut, 8192, 512, options={"mtu": Mtu.MTU_1024})
    await p.post(3)
    ours, theirs = p.pairs[0]
    broken = SendWR(1, WrOpcode.SEND, [p.mr.sge(0, 1024), SGE(p.mr.iova, 1024, p.mr.lkey ^ 3)])
    await ours.post_send(broken)
    (wc,) = await p.cqs[0].wait(1, timeout_ns=WAIT_NS)
    assert wc.status == WcStatus.LOC_PROT_ERR
    p.source.packet(p.bytes(0, 1024), theirs.qp_num, more=True)
    await p.check()
    await theirs.modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
    found = await p.done(3)
    assert [(wc.wr_id, wc.status, wc.wc_flags) for wc in found] == [
        (FIRST + n, WcStatus.WR_FLUSH_ERR, CONSUMED) for n in range(3)
    ]
    await p.well()
