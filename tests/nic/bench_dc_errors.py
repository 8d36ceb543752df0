"""Dynamic connections that cannot be made, that break, and that bad networks disturb."""

import random
from collections import deque

import cocotb
import numpy as np
import pytest
from cocotb.triggers import Timer

from hdl.abi.enums import EventType, Mtu, QpAttrMask, QpState, WcStatus, WrOpcode
from hdl.wire.opcodes import DcControl
from sim.guest.verbs import QPAttr, RdmaError, query_dct
from sim.models.impairments import Impairments
from sim.wire.pcap import read_pcap
from tests.nic.dc import KEY, Dc, Target, more_initiators_than_contexts
from tests.nic.initiator import LENGTH
from tests.slow import QUICK

RESET = QPAttr(qp_state=QpState.RESET)


async def fails(p, status, **more):
    """A SEND of a new initiator ends with ``status``, what is behind it is flushed, and the
    initiator is in ERR; after a RESET it works again."""
    qp = await p.initiator(**{name: more.pop(name) for name in list(more) if name != "way"})
    await qp.post_send([p.send(0, 64, n, **more) for n in range(3)])
    found = [(wc.wr_id, wc.status) for wc in await p.done(3)]
    flushed = [(n, WcStatus.WR_FLUSH_ERR) for n in (1, 2)]
    assert found == [(0, status), *flushed], found
    assert (await qp.query()).qp_state == QpState.ERR
    await qp.modify(RESET, QpAttrMask.STATE)
    await qp.to_rts(p.attr)
    return qp


@cocotb.test()
async def t_d4_refused(dut):
    """T-D4: a wrong key, a wrong number, a target in INIT or in ERR. The key alone is counted, and
    is an event, once until the target is asked."""
    p = await Dc.up(dut)
    (target,) = p.targets
    wrong = await p.way(target, key=KEY ^ 1)
    qp = await fails(p, WcStatus.REM_ACCESS_ERR, way=wrong)
    event = await target.node.context.events.get()
    while event.event == EventType.GID_CHANGE:
        event = await target.node.context.events.get()
    assert (event.event, event.number) == (EventType.DCT_KEY_VIOLATION, target.qp.qp_num)
    number = await p.way(target, dctn=target.qp.qp_num ^ 1 << 20)
    await fails(p, WcStatus.REM_ACCESS_ERR, way=number)
    asked = await query_dct(target.qp)
    assert (asked.key_violations, asked.connects) == (1, 0)
    for state in (QpState.INIT, QpState.ERR):
        other = await Target.up(target.node, state=QpState.INIT)
        if state == QpState.ERR:
            await other.qp.modify(QPAttr(qp_state=state), QpAttrMask.STATE)
        await fails(p, WcStatus.REM_ACCESS_ERR, way=await p.way(other))
    await target.post(0)
    await qp.post_send(p.send(0, 64))
    await p.good()
    await target.done()
    await p.well()


@cocotb.test()
async def t_d5_nobody_answers(dut):
    """T-D5: retry_cnt 1 and no peer: two CONNECTs, then RETRY_EXC_ERR."""
    p = await Dc.up(dut)
    wire = p.system.testbench.wires[0]
    wire.impair(Impairments(loss=1.0))
    before = (await p.node.counters())["tx_packets"]
    qp = await fails(p, WcStatus.RETRY_EXC_ERR, retry_cnt=1)
    assert (await p.node.counters())["tx_packets"] - before == 2
    wire.impair()
    await p.targets[0].post(0)
    await qp.post_send(p.send(0, 64))
    await p.good()
    await p.targets[0].done()


@cocotb.test()
async def t_d17_mtu(dut):
    """T-D17: the initiator's path MTU is beyond the target's."""
    p = await Dc.up(dut)
    await fails(p, WcStatus.REM_INV_REQ_ERR, mtu=Mtu.MTU_2048)
    await p.well()


@cocotb.test()
async def t_d6_d7_bad_network(dut):
    """T-D6, T-D7: packets of both kinds, those of connections among them, are lost, doubled and
    overtaken: each request is executed once, in the order of the queue, whatever target it is
    for."""
    p = await Dc.up(dut, targets=2)
    rng = random.Random(11)
    for number, wire in enumerate(p.system.testbench.wires):
        bad = f"loss=4%,duplicate=7%,reorder=4,overtaken=10%,seed={number + 5}"
        wire.impair(Impairments.parse(bad))
    expected, added = [deque(), deque()], 0
    for target in p.targets:
        await target.post(*range(40), size=1500)
        target.mr.write(bytes(8), LENGTH - 8)
    for n in range(40):
        to, kind = rng.randrange(2), rng.choice(("send", "send", "add"))
        length, at = rng.choice((0, 8, 1024, 1500)), rng.randrange(LENGTH // 2)
        if kind == "send":
            wr = p.send(at, length, n, to=to)
            expected[to].append((length, at))
        else:
            opcode = WrOpcode.ATOMIC_FETCH_AND_ADD
            wr = p.request(opcode, LENGTH - 8, 8, n, to=to, place=LENGTH - 8, compare_add=1)
            added += 1
        await p.qp.post_send(wr)
        (wc,) = await p.good()
        assert wc.wr_id == n
    for wire in p.system.testbench.wires:
        wire.impair()
    total = 0
    for target, messages in zip(p.targets, expected, strict=True):
        for place, wc in enumerate(await target.done(len(messages))):
            length, at = messages.popleft()
            assert (wc.status, wc.wr_id, wc.byte_len) == (WcStatus.SUCCESS, place, length)
            found = target.mr.read(length, place * 1500 % LENGTH)
            assert np.array_equal(found, p.data[at : at + length]), place
        total += int.from_bytes(target.mr.read(8, LENGTH - 8).tobytes(), "little")
    assert total == added
    await p.well()


@cocotb.test()
async def t_d12_remote_errors_leave_the_target(dut):
    """D-12: a request without the right ends the initiator alone; the target goes on, for it and
    for others. After RESET the initiator connects anew."""
    p = await Dc.up(dut)
    (target,) = p.targets
    for turn in range(3):
        wr = p.request(WrOpcode.RDMA_WRITE, 0, 64, turn, place=LENGTH - 32)
        await p.qp.post_send([wr, p.send(0, 64, 9)])
        found = [(wc.wr_id, wc.status) for wc in await p.done(2)]
        assert found == [(turn, WcStatus.REM_ACCESS_ERR), (9, WcStatus.WR_FLUSH_ERR)]
        await p.qp.modify(RESET, QpAttrMask.STATE)
        await p.qp.to_rts(p.attr)
    await target.post(0)
    await p.qp.post_send(p.send(0, 64))
    await p.good()
    await target.done()
    assert (await query_dct(target.qp)).state == 1
    await p.well()


@cocotb.test()
async def t_d15_d16_target_goes_in_a_message(dut):
    """T-D15, T-D16: a target is reset in the middle of a SEND: the request that it holds ends
    flushed, with the target's number; the initiator gets no answer."""
    p = await Dc.up(dut)
    (target,) = p.targets
    await target.post(0, size=1 << 15)
    p.qp = await p.initiator(retry_cnt=1, timeout=1)
    wire = p.system.testbench.wires[0]
    await p.qp.post_send(p.send(0, 1 << 15, 3))
    for _ in range(10_000):
        if (await query_dct(target.qp)).contexts:
            break
        await Timer(200, "ns")
    wire.impair(Impairments(every=6))
    await Timer(20, "us")
    wire.impair(Impairments(loss=1.0))
    await target.qp.modify(RESET, QpAttrMask.STATE)
    wire.impair()
    (wc,) = await target.done()
    assert (wc.status, wc.qp_num, wc.byte_len) == (WcStatus.WR_FLUSH_ERR, target.qp.qp_num, 0)
    (wc,) = await p.done()
    assert (wc.wr_id, wc.status) == (3, WcStatus.RETRY_EXC_ERR)
    assert (await query_dct(target.qp)).contexts == 0
    await target.qp.close()
    await p.well()


@cocotb.test(skip=QUICK)
async def t_d3_more_initiators_than_contexts(dut):
    """T-D3: the target's card has one context: the initiators wait for their turn, and all
    arrive."""
    await more_initiators_than_contexts(dut, 4, 1)


@cocotb.test()
async def t_d16_initiators_go(dut):
    """T-D16: an initiator that is destroyed or reset leaves no connection, and no completion."""
    p = await Dc.up(dut)
    (target,) = p.targets
    await target.post(*range(2))
    for how in ("destroy", "reset"):
        qp = await p.initiator()
        await qp.post_send(p.send(0, 64))
        await p.good()
        if how == "destroy":
            await qp.close()
        else:
            await qp.modify(RESET, QpAttrMask.STATE)
        for _ in range(50):
            if not (await query_dct(target.qp)).contexts:
                break
            await Timer(10, "us")
        assert (await query_dct(target.qp)).contexts == 0
    await target.done(2)
    with pytest.raises(RdmaError):
        await p.targets[0].qp.post_send(p.send(0, 1))
    await p.well()


@cocotb.test(skip=QUICK)
async def t_d8_context_goes_without_an_answer(dut):
    """T-D8: a WRITE was executed, its answer is lost, and the target's end goes meanwhile: the
    WRITE is not executed again, and ends with RETRY_EXC_ERR."""
    p = await Dc.up(dut)
    (target,) = p.targets
    p.qp = await p.initiator(timeout=8, retry_cnt=1)
    await p.qp.post_send(p.request(WrOpcode.RDMA_WRITE, 0, 64, 1))
    await p.good()
    back = p.system.testbench.wires[1]
    back.impair(Impairments(loss=1.0))
    await p.qp.post_send(p.request(WrOpcode.RDMA_WRITE, 64, 64, 2, place=0))
    for _ in range(100):
        if np.array_equal(target.mr.read(64), p.data[64:128]):
            break
        await Timer(1, "us")
    assert np.array_equal(target.mr.read(64), p.data[64:128])
    target.mr.write(np.zeros(64, np.uint8))
    await target.qp.modify(RESET, QpAttrMask.STATE)
    back.impair()
    (wc,) = await p.done()
    assert (wc.wr_id, wc.status) == (2, WcStatus.RETRY_EXC_ERR)
    assert not target.mr.read(64).any()
    await p.well()


@cocotb.test()
async def t_d14_lost_nak(dut):
    """D-6, T-D14: the NAK of a request without the right is lost; the target's end says so again,
    and the request ends with REM_ACCESS_ERR."""
    p = await Dc.up(dut)
    (target,) = p.targets
    p.qp = await p.initiator(timeout=8)
    await p.qp.post_send(p.request(WrOpcode.RDMA_WRITE, 0, 64, 1))
    await p.good()
    back = p.system.testbench.wires[1]
    back.impair(Impairments(loss=1.0))
    await p.qp.post_send(p.request(WrOpcode.RDMA_WRITE, 0, 64, 2, place=LENGTH - 32))
    for _ in range(100):
        if (asked := await query_dct(target.qp)).access_errors:
            break
        await Timer(1, "us")
    assert (asked.access_errors, asked.request_errors) == (1, 0)
    back.impair()
    (wc,) = await p.done()
    assert (wc.wr_id, wc.status) == (2, WcStatus.REM_ACCESS_ERR)
    event = await target.node.context.events.get()
    while event.event == EventType.GID_CHANGE:
        event = await target.node.context.events.get()
    assert (event.event, event.number) == (EventType.DCT_ACCESS_ERR, target.qp.qp_num)
    await p.well()


@cocotb.test()
async def t_d9_old_packets(dut):
    """T-D9: packets of a connection that is over come again when its row has another one: they
    name the number of before, and are dropped; the CONNECT makes an end that nobody uses."""
    p = await Dc.up(dut)
    (target,) = p.targets
    dc = target.node.function.commands.dc
    assert dc is not None
    dc.targets.quarantine = 1000  # ns
    await target.post(*range(4))
    p.system.testbench.wires[0].capture("dc.pcap")
    rows = set()
    for n in range(2):
        await p.qp.post_send(p.send(0, 64, n))
        await p.good()
        await target.done()
        rows |= set(target.node.function.commands.objects.contexts)
        while not n and (await query_dct(target.qp)).contexts:
            await Timer(5, "us")
    p.system.testbench.wires[0].end_capture()
    assert len(rows) == 1  # the same row, with another number
    frames = [frame for _, frame in read_pcap("dc.pcap") if frame[:6] == bytes(target.node.mac)]
    opcodes = [frame[42] for frame in frames]
    first = frames[: opcodes.index(DcControl.DISCONNECT) + 1]
    assert [frame[42] for frame in first] == [DcControl.CONNECT, 0xC4, DcControl.DISCONNECT]
    before = await target.node.counters()
    for frame in first:
        p.system.testbench.wires[1].inject(frame)
    await Timer(30, "us")
    after = await target.node.counters()
    assert after["unknown_qp"] - before["unknown_qp"] == 1
    await p.qp.post_send(p.send(0, 64, 2))
    await p.good()
    await target.done()
    assert (await query_dct(target.qp)).connects >= 3
    await p.well()
