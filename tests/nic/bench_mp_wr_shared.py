"""Shared receive queues whose requests take several packets, and services without answers."""

import json
from dataclasses import replace
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import (
    Mtu,
    QpAttrMask,
    QpState,
    QpType,
    WcFlags,
    WcOpcode,
    WcStatus,
)
from hdl.abi.multicast import MULTICAST_QPN
from hdl.wire.headers import XRCETH
from hdl.wire.opcodes import Operation, Transport
from sim.guest.verbs import (
    AH,
    QP,
    SGE,
    SRQ,
    WC,
    XRCD,
    AHAttr,
    GlobalRoute,
    MpWr,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SrqAttr,
)
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap
from tests.mp_wr_source import BROKEN, CONSUMED, Completed
from tests.nic.mp_wr import EMPTY, FIRST, WAIT_NS, MpWrPair, Wire

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "mp_wr.json").read_text())
SMALL = {"mtu": Mtu.MTU_1024}
QKEY = 0x11223344


@cocotb.test()
async def t_m1_two_qps_in_turn(dut):
    """T-M1: packets of two QPs lie side by side in the request of a shared queue."""
    p = await Wire.up(dut, 65536, 512, qps=2, shared=True, options=SMALL)
    s, (one, two) = p.wire, [pair[1] for pair in p.pairs]
    await p.post()
    turns = {one: s.message(p.bytes(0, 2500)), two: s.message(p.bytes(5000, 1500))}
    psns = {one: 0, two: 0}
    for qp in (one, two, one, two, one):
        opcode, body = next(turns[qp])
        s.send(opcode, body, qp=qp, psn=psns[qp])
        psns[qp] += 1
        more = opcode in (Operation.SEND_FIRST, Operation.SEND_MIDDLE)
        p.source.packet(body, qp.qp_num, more=more)
    found = await p.check()
    numbers = {0x12: one.qp_num, 0x13: two.qp_num}
    for n, octets in VECTORS["shared"].items():
        expected = Completed.of(WC.unpack(bytes.fromhex(octets)))
        assert found[int(n)] == replace(expected, qp=numbers[expected.qp])
    await p.well()


@cocotb.test()
async def t_m4_senders_in_turn(dut):
    """T-M4: long messages of four QPs through requests of 8 KiB: by the order in which the pieces
    completed, each is where the model says."""
    p = await MpWrPair.up(dut, 8192, 512, qps=4, shared=True, buffers=16, options=SMALL)
    await p.post(16)
    lengths = [11_000, 7000, 513, 20_000]
    rest = {}
    for n, (length, (ours, theirs)) in enumerate(zip(lengths, p.pairs, strict=True)):
        await ours.post_send(p.request(n * 30_000, length))
        rest[theirs.qp_num] = p.bytes(n * 30_000, length)
    await p.good(4)
    seen = []
    while any(rest.values()):
        (wc,) = await p.done(1)
        seen.append(Completed.of(wc))
        if wc.opcode == WcOpcode.RECV:
            part, rest[wc.qp_num] = rest[wc.qp_num][:1024], rest[wc.qp_num][1024:]
            p.source.packet(part, wc.qp_num, more=bool(rest[wc.qp_num]))
    await p.check(seen)
    await p.well()


@cocotb.test()
async def t_m5_one_fails_in_a_message(dut):
    """T-M5, M-20: one of two QPs of a shared queue fails in mid-message. The other one goes on in
    the open request, and no request is lost."""
    p = await Wire.up(dut, 8192, 512, qps=2, shared=True, options=SMALL)
    s, (one, two) = p.wire, [pair[1] for pair in p.pairs]
    await p.post(3)
    s.send(Operation.SEND_FIRST, p.bytes(0, 1024), qp=one, psn=0)
    p.source.packet(p.bytes(0, 1024), one.qp_num, more=True)
    s.send(Operation.SEND_ONLY, p.bytes(9, 100), qp=two, psn=0)
    p.source.packet(p.bytes(9, 100), two.qp_num)
    s.send(Operation.SEND_ONLY, p.bytes(0, 5), qp=one, psn=1)  # not in the middle of a message
    await s.quiet()
    assert (await one.query()).qp_state == QpState.ERR
    for n in range(1, 20):
        s.send(Operation.SEND_ONLY, p.bytes(n, 1000), qp=two, psn=n)
        p.source.packet(p.bytes(n, 1000), two.qp_num)
    found = await p.check()
    given = [one.wr_id for one in found if one.flags & CONSUMED]
    assert given == [FIRST, FIRST + 1]
    # Its owner destroys the QP, and nothing of the queue ends with it.
    await one.close()
    s.send(Operation.SEND_ONLY, p.bytes(0, 64), qp=two, psn=20)
    p.source.packet(p.bytes(0, 64), two.qp_num)
    await p.check()
    await p.well()


@cocotb.test()
async def t_m6_bad_page_of_a_shared_queue(dut):
    """T-M6, M-21: a QP meets a bad SGE of a shared queue's request and stops. The request goes back
    as RECV_NOP, and the other QP goes on in the next one."""
    p = await MpWrPair.up(dut, 8192, 512, qps=2, shared=True, options=SMALL)
    good = p.sink.sge(0, 4096)
    bad = RecvWR(FIRST, [good, SGE(good.addr + 4096, 4096, good.lkey ^ 5)])
    await p.srq.post_recv(bad)
    p.source.wrs.append(FIRST)
    p.posted = 1
    await p.post(2)
    (ours, one), (_, two) = p.pairs
    await ours.post_send([p.request(0, 4000), p.request(8, 1024)])
    statuses = [wc.status for wc in await p.cqs[0].wait(2, timeout_ns=WAIT_NS)]
    assert statuses == [WcStatus.SUCCESS, WcStatus.REM_OP_ERR]
    p.source.message(p.bytes(0, 4000), p.mtu, one.qp_num)
    await p.check()
    failed, closed = await p.done(2)
    assert (failed.wr_id, failed.status, failed.wc_flags) == (FIRST, WcStatus.LOC_PROT_ERR, 0)
    assert Completed.of(closed) == Completed(
        FIRST, WcOpcode.RECV_NOP, closed.mp_wr_offset, 0, CONSUMED, one.qp_num
    )
    p.source.wrs.pop(0)
    p.source.at = 0
    await p.send([3000, 9000], pair=1)
    await p.check()
    assert two.state == QpState.RTS
    await p.well()


@cocotb.test()
async def undone_packets_give_back(dut):
    """M-18: packets of a QP behind one of its own that fails are undone. What they took of a shared
    queue's requests stays unused, and a request that they ended goes back."""
    p = await Wire.up(dut, 4096, 1024, qps=2, shared=True, options=SMALL)
    s, (one, two) = p.wire, [pair[1] for pair in p.pairs]
    await p.post(3)
    place = {"va": p.target.iova, "rkey": p.target.rkey ^ 1, "dma_length": 8}
    s.send(Operation.WRITE_ONLY, bytes(8), qp=one, psn=0, ack_request=0, **place)
    for n in range(1, 6):
        s.send(Operation.SEND_ONLY, p.bytes(0, 1000), qp=one, psn=n, ack_request=0)
        s.send(Operation.SEND_ONLY, p.bytes(n, 1000), qp=two, psn=n - 1, ack_request=0)
    await s.quiet(10)
    assert (await one.query()).qp_state == QpState.ERR
    assert (await p.nodes[1].counters())["resp_remote_access_errors"] == 1
    found = [Completed.of(wc) for wc in await p.cqs[1].poll(64)]
    pieces = [wc for wc in found if wc.opcode == WcOpcode.RECV]
    assert [wc.qp for wc in pieces] == [two.qp_num] * 5
    for n, wc in enumerate(pieces, 1):
        seen = p.sink.read(1000, p.place(wc.wr_id) + wc.offset)
        assert seen.tobytes() == p.bytes(n, 1000)
    for n in range(6, 30):
        s.send(Operation.SEND_ONLY, p.bytes(n, 1000), qp=two, psn=n - 1)
        if n % 4 == 0:
            await s.quiet(3)
    found += [Completed.of(wc) for wc in await p.cqs[1].poll(64)]
    given = [wc.wr_id for wc in found if wc.flags & CONSUMED]
    assert given == [FIRST, FIRST + 1, FIRST + 2]
    for number in given:  # the last one of its request
        own = [wc for wc in found if wc.wr_id == number]
        assert own[-1].flags & CONSUMED and sum(bool(wc.flags & CONSUMED) for wc in own) == 1
    await p.well()


@cocotb.test()
async def undone_packets_end_requests(dut):
    """M-18: SENDs of a QP behind a WRITE whose page, which the card asks the host for, names
    nothing. Before that is known they take the rest of the open request, and some of the next one.
    The first goes back without them, and the other QP goes on behind what they have taken."""
    p = await Wire.up(dut, 4096, 1024, qps=2, shared=True, options=SMALL)
    s, (one, two) = p.wire, [pair[1] for pair in p.pairs]
    await p.post(4)
    s.send(Operation.SEND_ONLY, p.bytes(0, 100), qp=two, psn=0, ack_request=0)
    await s.quiet(10)  # the requests behind the open one are on the card by then
    p.target.table.entry(0, 1)[0] |= 8
    p.nodes[1].host.set(read_latency_ns=3000)
    place = {"va": p.target.iova, "rkey": p.target.rkey, "dma_length": 8}
    s.send(Operation.WRITE_ONLY, bytes(8), qp=one, psn=0, ack_request=0, **place)
    for n in range(1, 7):
        s.send(Operation.SEND_ONLY, p.bytes(n, 10), qp=one, psn=n, ack_request=0)
    s.send(Operation.SEND_ONLY, p.bytes(200, 1000), qp=two, psn=1, ack_request=0)
    await s.quiet(20)
    assert (await one.query()).qp_state == QpState.ERR
    assert (await p.nodes[1].counters())["resp_remote_access_errors"] == 1
    found = [Completed.of(wc) for wc in await p.cqs[1].poll(64)]
    assert found == [
        Completed(FIRST, WcOpcode.RECV, 0, 100, 0, two.qp_num),
        Completed(FIRST, WcOpcode.RECV_NOP, 0, 0, CONSUMED, one.qp_num),
        Completed(FIRST + 1, WcOpcode.RECV, 3072, 1000, CONSUMED, two.qp_num),
    ]
    assert p.sink.read(1000, p.place(FIRST + 1) + 3072).tobytes() == p.bytes(200, 1000)
    for n in range(8):
        s.send(Operation.SEND_ONLY, p.bytes(n, 1024), qp=two, psn=2 + n, ack_request=0)
    await s.quiet(20)
    found = [Completed.of(wc) for wc in await p.cqs[1].poll(64)]
    assert [wc.wr_id for wc in found if wc.flags & CONSUMED] == [FIRST + 2, FIRST + 3]
    await p.well()


@cocotb.test()
async def receive_queue_that_packets_name(dut):
    """XRC: the requests of a queue of a domain take several packets of two targets' messages."""
    p = await Wire.up(dut, 8192, 512, options=SMALL)
    s, there = p.wire, p.nodes[1].context
    xrcd = await XRCD.create(there)
    p.srq = await SRQ.create(p.pds[1], SrqAttr(8, 1), xrcd=xrcd, cq=p.cqs[1], mp_wr=MpWr(8192, 512))
    plain = await SRQ.create(p.pds[1], SrqAttr(8, 1), xrcd=xrcd, cq=p.cqs[1])
    init = QPInitAttr(QpType.XRC_TGT, xrcd=xrcd)
    target = await QP.create(p.pds[1], init)
    await target.to_rtr(p.receiver())
    await p.post(2)
    await plain.post_recv(RecvWR(7, [p.target.sge(0, 4096)]))

    async def send(psn, opcode, body, srq=p.srq):
        named = XRCETH.pack(srq=srq.srq_num) + body
        s.send(Transport.XRC << 5 | opcode, named, qp=target, psn=psn)

    for n, (opcode, body) in enumerate(s.message(p.bytes(3, 3000))):
        await send(n, opcode, body)
    p.source.message(p.bytes(3, 3000), p.mtu, target.qp_num)
    await p.check()
    await send(3, Operation.SEND_ONLY, p.bytes(0, 600), plain)
    (wc,) = await p.done(1)
    assert (wc.wr_id, wc.mp_wr_offset, wc.wc_flags) == (7, 0, 0)
    await send(4, Operation.SEND_FIRST, p.bytes(0, 1024))
    p.source.packet(p.bytes(0, 1024), target.qp_num, more=True)
    await p.check()
    await target.close()  # holds nothing
    await p.srq.close()
    await p.well()


@cocotb.test()
@cocotb.parametrize(ipv6=[False, True])
async def t_m13_datagrams(dut, ipv6):
    """T-M13, T-M1, M-29: each datagram is a piece, with its GRH area in front, over IPv4 and
    IPv6."""
    options = {"type": QpType.UD, "qkey": QKEY}
    p = await MpWrPair.up(dut, 4224, 64, options=options)
    if ipv6:
        for side, node in enumerate(p.nodes):
            await node.context.add_gid(1, f"fd00::{side + 1}")
    await p.post(2)
    (ours, theirs), path = p.pairs[0], f"mp_wr_datagrams_{ipv6}.pcap"
    wire = p.system.testbench.wires[0]
    wire.capture(path)
    gid = p.nodes[1].context.query_gid(1, int(ipv6))
    route = GlobalRoute(dgid=gid, sgid_index=int(ipv6))
    ah = AH(p.pds[0], AHAttr(gr=route, roce_dmac=p.nodes[1].mac))
    for n in range(23):
        wr = p.request(n, 100)
        wr.set_wr_ud(ah, theirs.qp_num, QKEY)
        await ours.post_send(wr)
        await p.good()
    await Timer(3, "us")
    wire.end_capture()
    frames = [frame for _, frame in read_pcap(path)]
    for n, frame in enumerate(frames):
        octets = pk.grh_area(frame) + p.bytes(n, 100)
        p.source.packet(octets, theirs.qp_num, flags=WcFlags.GRH)
    found = await p.check()
    for n, octets in VECTORS["datagrams"].items():
        wanted = Completed.of(WC.unpack(bytes.fromhex(octets)))
        wanted = replace(wanted, qp=theirs.qp_num, wr_id=wanted.wr_id - 0x20)
        assert found[int(n)] == replace(wanted, flags=wanted.flags | WcFlags.GRH)
    await p.well()


@cocotb.test()
async def t_m1_broken_messages(dut):
    """T-M1, M-25 to M-27: of UC messages that lose a packet the pieces have completed. That they go
    no further is told once, before anything of the next message, and not if no piece had come."""
    p = await Wire.up(dut, 65536, 512, options={"type": QpType.UC})
    s, qp = p.wire, p.pairs[0][1]
    uc = Transport.UC << 5
    first, middle, last, only = (
        uc | Operation[f"SEND_{name}"] for name in ("FIRST", "MIDDLE", "LAST", "ONLY")
    )
    write = uc | Operation.WRITE_ONLY
    place = {"va": p.target.iova, "rkey": p.target.rkey, "dma_length": 8}
    packet, end = p.bytes(0, 4096), p.bytes(7, 8)
    broken = Completed(0, WcOpcode.RECV_NOP, 0, 0, BROKEN, qp.qp_num)
    await p.post()

    def piece(octets, more=False):
        p.source.packet(octets, qp.qp_num, more=more)

    # The last one is lost, and another message begins.
    s.send(first, packet)
    s.send(middle, packet)
    s.psn += 1
    s.send(only, end)
    piece(packet, True)
    piece(packet, True)
    p.source.done.append(broken)
    piece(end)
    # The middle is lost: told at once; what follows of the message is dropped without a word.
    s.send(first, packet)
    s.psn += 1
    s.send(middle, packet)
    s.send(last, end)
    s.send(only, end)
    piece(packet, True)
    p.source.done.append(broken)
    piece(end)
    # A WRITE begins where a SEND should have gone on.
    s.send(first, packet)
    s.send(write, end, **place)
    piece(packet, True)
    p.source.done.append(broken)
    # The first packet is lost: nothing was told of that message.
    s.psn += 1
    s.send(middle, packet)
    s.send(last, end)
    s.send(only, end)
    piece(end)
    found = await p.check()
    assert sum(one.flags == BROKEN for one in found) == 3
    assert p.target.read(8).tobytes() == end
    await p.well()


@cocotb.test()
async def m18_bad_key_between_pieces(dut):
    """M-18, UC: WRITEs with immediate whose key is bad, in the middle of a request and where they
    would take the last of it: they are dropped and counted, and complete nothing. Their segments
    stay unused; the request that one of them has used up goes back without it."""
    p = await Wire.up(dut, 4096, 1024, options={"type": QpType.UC} | SMALL)
    s, qp = p.wire, p.pairs[0][1]
    send, write = (
        Transport.UC << 5 | one for one in (Operation.SEND_ONLY, Operation.WRITE_ONLY_IMM)
    )
    place = {"va": p.target.iova, "dma_length": 8, "imm": 0xABCD}
    good, bad = place | {"rkey": p.target.rkey}, place | {"rkey": p.target.rkey ^ 1}
    before = p.target.read(64)
    await p.post(2)
    s.send(send, p.bytes(0, 1000))
    s.send(write, bytes(8), **bad)
    s.send(send, p.bytes(500, 900))
    await s.quiet(10)
    pieces = [
        Completed(FIRST, WcOpcode.RECV, 0, 1000, 0, qp.qp_num),
        Completed(FIRST, WcOpcode.RECV, 2048, 900, 0, qp.qp_num),
    ]
    assert [Completed.of(wc) for wc in await p.cqs[1].poll(64)] == pieces
    s.send(write, bytes(8), **bad)
    s.send(send, p.bytes(9, 10))
    s.send(write, p.bytes(0, 8), **good)
    await s.quiet(10)
    found = [Completed.of(wc) for wc in await p.cqs[1].poll(64)]
    imm, opcode = WcFlags.WITH_IMM, WcOpcode.RECV_RDMA_WITH_IMM
    assert found == [
        Completed(FIRST, WcOpcode.RECV_NOP, 0, 0, CONSUMED, qp.qp_num),
        Completed(FIRST + 1, WcOpcode.RECV, 0, 10, 0, qp.qp_num),
        Completed(FIRST + 1, opcode, 1024, 8, imm, qp.qp_num),
    ]
    assert (await p.nodes[1].counters())["resp_remote_access_errors"] == 2
    assert qp.state == QpState.RTS and (await qp.query()).qp_state == QpState.RTS
    for number, at, start, length in ((FIRST, 0, 0, 1000), (FIRST, 2048, 500, 900)):
        seen = p.sink.read(length, p.place(number) + at).tobytes()
        assert seen == p.bytes(start, length)
    assert p.sink.read(1024, p.place(FIRST) + 1024).tobytes() == bytes([EMPTY]) * 1024
    after = p.target.read(64)
    assert after[:8].tobytes() == p.bytes(0, 8) and after[8:].tobytes() == before[8:].tobytes()
    await p.well()


@cocotb.test()
async def t_m1_no_request_for_the_rest(dut):
    """M-27: a UC message that finds no request in its middle is broken, and nothing is held."""
    p = await Wire.up(dut, 4096, 512, options={"type": QpType.UC} | SMALL)
    s, qp = p.wire, p.pairs[0][1]
    await p.post()
    for opcode, body in s.message(p.bytes(0, 6000), Transport.UC):
        s.send(opcode, body)
    assert p.source.message(p.bytes(0, 6000), p.mtu, qp.qp_num) == 4
    broken = Completed(0, WcOpcode.RECV_NOP, 0, 0, BROKEN, qp.qp_num)
    p.source.done.append(broken)
    await p.check()
    await p.post()
    for opcode, body in s.message(p.bytes(9, 2000), Transport.UC):
        s.send(opcode, body)
    p.source.message(p.bytes(9, 2000), p.mtu, qp.qp_num)
    await p.check()
    await p.well()


@cocotb.test()
async def m30_members_of_a_group(dut):
    """M-30: each member of a multicast group takes a piece of a request of its own."""
    p = await MpWrPair.up(dut, 4224, 64, qps=2, options={"type": QpType.UD, "qkey": QKEY})
    group = "239.1.2.3"
    for n, (_, theirs) in enumerate(p.pairs):
        await theirs.attach_mcast(group)
        await theirs.post_recv(RecvWR(FIRST + n, [p.sink.sge(p.place(FIRST + n), p.buffer)]))
    for at in (0, 100, 200):
        wr = p.request(at, 100)
        wr.set_wr_ud(AH(p.pds[0], AHAttr.to_group(group)), MULTICAST_QPN, QKEY)
        await p.pairs[0][0].post_send(wr)
        await p.good()
    found = [Completed.of(wc) for wc in await p.done(6)]
    for n, (_, theirs) in enumerate(p.pairs):
        own = [wc for wc in found if wc.qp == theirs.qp_num]
        assert [(wc.wr_id, wc.offset, wc.byte_len) for wc in own] == [
            (FIRST + n, offset, 140) for offset in (0, 192, 384)
        ]
        for at, wc in zip((0, 100, 200), own, strict=True):
            seen = p.sink.read(100, p.place(wc.wr_id) + wc.offset + 40)
            assert seen.tobytes() == p.bytes(at, 100)
    await p.well()


@cocotb.test()
@cocotb.parametrize(state=[QpState.ERR, QpState.RESET])
async def m28_stops_in_a_message(dut, state):
    """M-28: a UC queue pair that leaves in mid-message tells of no broken one; in ERR its requests
    end flushed, with CONSUMED."""
    p = await Wire.up(dut, 8192, 512, options={"type": QpType.UC} | SMALL)
    s, qp = p.wire, p.pairs[0][1]
    await p.post(2)
    s.send(Transport.UC << 5 | Operation.SEND_FIRST, p.bytes(0, 1024))
    p.source.packet(p.bytes(0, 1024), qp.qp_num, more=True)
    await p.check()
    await qp.modify(QPAttr(qp_state=state), QpAttrMask.STATE)
    found = await p.done(2 if state == QpState.ERR else 0)
    for n, wc in enumerate(found):
        assert (wc.wr_id, wc.status, wc.wc_flags) == (FIRST + n, WcStatus.WR_FLUSH_ERR, CONSUMED)
    await Timer(5, "us")
    await p.well()
