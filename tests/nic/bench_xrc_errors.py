"""XRC: what is refused, and what it leaves behind. In the place of one card there is Python where a
real one would not send such a thing."""

import struct
from dataclasses import replace

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import EventType, QpState, QpType, WcStatus, WrOpcode
from sim.guest.verbs import QP, SRQ, XRCD, QPInitAttr, SendWR, SrqAttr
from tests.nic.initiator import CAP, LENGTH, WAIT_NS, frame_to
from tests.nic.xrc import OPTIONS, Process, Xrc

#: Opcodes of RC (IBTA vol 1, 9.2.1), and in the class of XRC (docs/extensions.md).
RC_SEND_ONLY = 0x04
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0xA0, 0xA1, 0xA2, 0xA4
WRITE_FIRST, WRITE_LAST = 0xA6, 0xA8
READ, RESPONSE, ACK = 0xAC, 0xB0, 0xB1
#: XRCETH: 8 reserved bits and the number; RETH: address, key and length (IBTA vol 1, 9.3).
XRCETH, RETH = struct.Struct(">I"), struct.Struct(">QII")
INVALID, ACCESS = 0x61, 0x62
MTU = 1024


async def events(context, qpn):
    """The next two events are the end of a target."""
    found = []
    while len(found) < 2:
        event = await context.get_async_event(WAIT_NS)
        if event.event != EventType.GID_CHANGE:
            found.append(event)
    expected = [EventType.QP_FATAL, EventType.QP_LAST_WQE_REACHED]
    assert [(one.event, one.number) for one in found] == [(one, qpn) for one in expected], found


class Peer:
    """Python in the place of the other card of ``side``."""

    @classmethod
    async def up(cls, dut, side=1, **options):
        self = cls()
        self.p = await Xrc.up(dut, connect=False, options=replace(OPTIONS, psns=(0, 0)), **options)
        self.wire, self.side, self.psn = self.p.system.testbench.wires[side], side, 0
        return self

    def send(self, opcode, body=b"", *, qp=None, psn=None, srq=None, **fields):
        """A packet to the card; ``srq``: the number in XRCETH."""
        if psn is None:
            psn, self.psn = self.psn, self.psn + 1
        p, side = self.p, self.side
        if srq is not None:
            body = XRCETH.pack(srq) + body
        qp = qp or (p.ini, p.tgt)[side]
        fields |= {"dest_qp": qp.qp_num, "psn": psn, "ack_request": 1}
        self.wire.inject(frame_to(p.nodes, side, opcode, body, **fields))

    async def answer(self):
        """Opcode, PSN and what follows the BTH of the next frame that the card sends."""
        frame, _ = await self.wire.receive(WAIT_NS)
        bth = frame[42:54]
        return bth[0], int.from_bytes(bth[9:12], "big"), frame[54:-4]


@cocotb.test()
async def t_x4_wrong_numbers(dut):
    """T-X4: the number of an ordinary shared queue, of no queue, of one of another domain and of
    one that has gone, with SEND, WRITE, READ and an atomic: REM_ACCESS_ERR, the target is in ERR,
    its two events come, and no memory is touched. So with a number of another generation."""
    p = await Xrc.up(dut, processes=2)
    there = p.nodes[1].context
    other = await XRCD.create(there)
    strange = await Process.up(there, other)
    plain = await SRQ.create(p.processes[0].pd, SrqAttr(8, 1))
    gone = p.processes[1].srq.srq_num
    await p.processes[1].close()
    p.processes[1] = again = await Process.up(there, p.xrcd)  # in the same pair
    one = p.processes[0]
    await one.post(0)
    numbers = {
        "plain": plain.srqn,
        "none": 5,
        "other domain": strange.srq.srq_num,
        "gone": gone,
        "generation": one.srq.srq_num ^ 0x800000,
    }
    assert again.srq.srq_num != gone
    before = one.mr.read(LENGTH)
    operations = (
        (WrOpcode.SEND, 100),
        (WrOpcode.RDMA_WRITE, 3000),
        (WrOpcode.RDMA_READ, 100),
        (WrOpcode.ATOMIC_FETCH_AND_ADD, 8),
    )
    for turn, (why, number) in enumerate(numbers.items()):
        for place, (opcode, length) in enumerate(operations):
            if turn and (turn + place) % 2:
                continue
            await p.ini.post_send(p.request(opcode, 0, length, srq_num=number, compare_add=1))
            (wc,) = await p.done()
            assert wc.status == WcStatus.REM_ACCESS_ERR, (why, opcode, wc)
            await events(there, p.tgt.qp_num)
            assert (await p.tgt.query()).qp_state == QpState.ERR
            await p.tgt.close()
            await p.ini.close()
            await p.connect()
    assert np.array_equal(one.mr.read(LENGTH), before)
    # The upper byte of the field means nothing.
    await p.ini.post_send(p.send(0, 100, srq_num=one.srq.srq_num | 0xAB000000))
    await p.good()
    (wc,) = await one.done()
    assert (wc.wr_id, wc.status) == (0, WcStatus.SUCCESS)
    await p.well()


@cocotb.test()
async def t_x5_number_changes_in_a_message(dut):
    """T-X5: a packet in the middle of a SEND, or of a WRITE, names another receive queue of the
    same domain: NAK 61h; the request that is held ends flushed."""
    s = await Peer.up(dut)
    p = s.p
    one, two = p.processes
    names = [process.srq.srq_num for process in p.processes]
    await one.post(4, size=4096)
    await two.post(5, size=4096)
    s.send(SEND_FIRST, bytes(MTU), srq=names[0])
    assert (await s.answer())[0] == ACK
    s.send(SEND_MIDDLE, bytes(MTU), srq=names[1])
    opcode, psn, rest = await s.answer()
    assert (opcode, psn, rest[0]) == (ACK, 1, INVALID)
    (wc,) = await one.done()
    assert (wc.wr_id, wc.status, wc.qp_num) == (4, WcStatus.WR_FLUSH_ERR, p.tgt.qp_num)
    await events(p.nodes[1].context, p.tgt.qp_num)
    await p.connect(replace(OPTIONS, psns=(0, 0)))
    s.psn = 0
    reth = RETH.pack(one.mr.iova, one.mr.rkey, 2 * MTU)
    s.send(WRITE_FIRST, reth + bytes(MTU), srq=names[0])
    assert (await s.answer())[2][0] == 0x1F
    s.send(WRITE_LAST, bytes(MTU), srq=names[1])
    assert (await s.answer())[2][0] == INVALID
    await p.well()


@cocotb.test()
async def t_x9_queue_goes_in_a_message(dut):
    """T-X9, X-12: the receive queue is destroyed while a message holds a request of it. The next
    packet gets NAK 62h, nothing completes, and no memory is touched; the target has its events. A
    queue that takes the pair over is not touched either."""
    s = await Peer.up(dut)
    p = s.p
    one = p.processes[0]
    number, pair = one.srq.srq_num, one.srq.srqn
    await one.post(4, size=4096)
    s.send(SEND_FIRST, bytes([7]) * MTU, srq=number)
    assert (await s.answer())[0] == ACK
    await one.srq.close()
    successor = await SRQ.create(one.pd, SrqAttr(8, 1), xrcd=p.xrcd, cq=one.cq)
    assert successor.srqn == pair and successor.srq_num != number
    before = one.mr.read(LENGTH)
    s.send(SEND_LAST, bytes([9]) * 100, srq=number)
    opcode, psn, rest = await s.answer()
    assert (opcode, psn, rest[0]) == (ACK, 1, ACCESS)
    await events(p.nodes[1].context, p.tgt.qp_num)
    assert np.array_equal(one.mr.read(LENGTH), before)
    assert await one.cq.poll(1) == []
    # The new queue works, and a target that is destroyed with nothing to give back ends at once.
    await p.tgt.close()
    one.srq = successor
    await p.connect(replace(OPTIONS, psns=(0, 0)))
    await one.post(6)
    s.psn = 0
    s.send(SEND_ONLY, bytes(10), srq=successor.srq_num)
    assert (await s.answer())[2][0] == 0x1F
    (wc,) = await one.done()
    assert (wc.wr_id, wc.status) == (6, WcStatus.SUCCESS)
    await p.well()


@cocotb.test()
async def held_by_a_target_that_goes(dut):
    """A target that is destroyed, or reset by its owner, gives back what it holds, flushed."""
    s = await Peer.up(dut)
    p = s.p
    one = p.processes[0]
    await one.post(4, 5, size=4096)
    s.send(SEND_FIRST, bytes(MTU), srq=one.srq.srq_num)
    assert (await s.answer())[0] == ACK
    await p.tgt.close()
    (wc,) = await one.done()
    assert (wc.wr_id, wc.status, wc.qp_num) == (4, WcStatus.WR_FLUSH_ERR, p.tgt.qp_num)
    await p.connect(replace(OPTIONS, psns=(0, 0)))
    s.psn = 0
    s.send(SEND_ONLY, bytes(10), srq=one.srq.srq_num)
    (wc,) = await one.done()
    assert (wc.wr_id, wc.status) == (5, WcStatus.SUCCESS)
    await p.well()


@cocotb.test()
async def t_x11_wrong_end(dut):
    """T-X11: a request to an initiator and an answer to a target are dropped and counted, and so is
    a packet of RC to either, and one of XRC to an RC queue pair."""
    s = await Peer.up(dut)
    p = s.p
    node = p.nodes[1]
    one = p.processes[0]
    await one.post(0)
    init = QPInitAttr(QpType.XRC_INI, one.cq, cap=CAP)
    initiator = await QP.create(one.pd, init)
    plain = await QP.create(one.pd, QPInitAttr(QpType.RC, one.cq, one.cq))
    number = one.srq.srq_num
    before = (await node.counters())["wrong_transport"]
    wrong = 0
    for qp, opcode, body in (
        (initiator, SEND_ONLY, bytes(8)),
        (p.tgt, ACK, bytes.fromhex("1f000000")),
        (p.tgt, RESPONSE, bytes.fromhex("1f000000")),
        (p.tgt, RC_SEND_ONLY, bytes(8)),
        (plain, SEND_ONLY, bytes(8)),
    ):
        named = None if opcode in (ACK, RESPONSE, RC_SEND_ONLY) else number
        s.send(opcode, body, qp=qp, psn=0, srq=named)
        wrong += 1
        await Timer(5, "us")
        assert (await node.counters())["wrong_transport"] == before + wrong

    # A packet to the number of the receive queue as if that were a queue pair's.
    class Named:
        qp_num = number

    s.send(SEND_ONLY, bytes(8), qp=Named, psn=0, srq=number)
    await Timer(5, "us")
    assert (await node.counters())["wrong_transport"] == before + wrong + 1
    assert await one.cq.poll(1) == []
    s.send(SEND_ONLY, bytes(8), srq=number)  # the target goes on
    assert (await s.answer())[2][0] == 0x1F
    await one.done()
    await p.well()


@cocotb.test()
async def t_x16_read_again_behind_its_queue(dut):
    """T-X16, X-13: a READ is answered; its receive queue is destroyed; its duplicate is answered
    with the protection domain that the READ had, and a new READ is refused."""
    s = await Peer.up(dut)
    p = s.p
    one = p.processes[1]
    number = one.srq.srq_num
    reth = RETH.pack(one.mr.iova + 64, one.mr.rkey, MTU)
    one.mr.write(p.data)
    s.send(READ, reth, srq=number)
    first = await s.answer()
    assert first[0] == RESPONSE and first[2][4:] == p.data[64 : 64 + MTU].tobytes()
    await one.srq.close()
    s.send(READ, reth, psn=0, srq=number)
    assert await s.answer() == first
    s.send(READ, reth, srq=number)
    opcode, psn, rest = await s.answer()
    assert (opcode, psn, rest[0]) == (ACK, 1, ACCESS)
    await p.well()


@cocotb.test()
async def t_x17_another_answer(dut):
    """T-X17: a peer that says 61h, 62h or 63h of a bad number: each ends the request with its own
    status."""
    s = await Peer.up(dut, side=0, processes=1)
    p = s.p
    for syndrome, status in (
        (0x61, WcStatus.REM_INV_REQ_ERR),
        (0x62, WcStatus.REM_ACCESS_ERR),
        (0x63, WcStatus.REM_OP_ERR),
    ):
        await p.ini.post_send(p.send(0, 8, 1))
        opcode, psn, _ = await s.answer()
        assert opcode == SEND_ONLY
        s.send(ACK, bytes([syndrome, 0, 0, 0]), psn=psn)
        (wc,) = await p.done()
        assert (wc.wr_id, wc.status) == (1, status)
        await p.ini.post_send(p.send(0, 8, 2))  # flushed
        (wc,) = await p.done()
        assert (wc.wr_id, wc.status) == (2, WcStatus.WR_FLUSH_ERR)
        await p.connect(replace(OPTIONS, psns=(0, 0)))
    await p.well()


@cocotb.test()
async def work_requests_that_an_initiator_has_not(dut):
    """X-3: FLUSH, ATOMIC WRITE and MEMCPY end with LOC_QP_OP_ERR, also if a driver posts them."""
    p = await Xrc.up(dut, processes=1)
    for opcode in (WrOpcode.FLUSH, WrOpcode.ATOMIC_WRITE, WrOpcode.MEMCPY):
        wr = SendWR(1, opcode, [p.mr.sge(0, 8), p.mr.sge(8, 8)] if opcode == 0x23 else [])
        await p.ini.sq.post_all(wr, lambda one: one.pack(None))
        (wc,) = await p.done()
        assert wc.status == WcStatus.LOC_QP_OP_ERR, opcode
        await p.connect()
    await p.well()
