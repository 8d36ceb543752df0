"""XRC between two whole cards: who gets what, which keys count, what a bad request leaves."""

import json
import random
from collections import deque
from dataclasses import replace
from pathlib import Path

import cocotb
import numpy as np
import pytest
from cocotb.triggers import Timer

from hdl.abi.enums import Access, DeviceCap, RdmaFeature, WcFlags, WcOpcode, WcStatus, WrOpcode
from hdl.abi.virtio_pci import Feature, Status
from sim.bench.system import connect
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import SGE, XRCD, FastMR, RdmaError, RecvWR, SendWR
from sim.models.impairments import Impairments
from sim.wire.pcap import read_pcap
from tests.nic.initiator import LENGTH, RIGHTS
from tests.nic.xrc import OPTIONS, Process, Xrc

INV = WrOpcode.SEND_WITH_INV
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in json.loads(
        (Path(__file__).parents[1] / "data" / "xrc.json").read_text()
    ).items()
}


@cocotb.test()
async def t_x1_two_processes(dut):
    """T-X1: two receive queues in one domain, one connection; 1000 messages in turn to both. Each
    CQ gets its half, in order, with the number of the target, and the bytes are right."""
    p = await Xrc.up(dut)
    caps = p.nodes[1].context.query_device()
    assert caps.device_cap_flags & DeviceCap.XRC and caps.max_xrcd
    for process in p.processes:
        await process.post(*range(48))
    sent, posted = 0, [48, 48]
    got = [0, 0]
    while min(got) < 500:
        batch = [
            p.send(64 * (n % 50), 1024, n, to=n % 2) for n in range(sent, min(sent + 32, 1000))
        ]
        sent += len(batch)
        await p.ini.post_send(batch)
        await p.good(len(batch))
        for side, process in enumerate(p.processes):
            for wc in await process.done(len(batch) // 2):
                number = 2 * got[side] + side
                assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, WcOpcode.RECV), wc
                assert (wc.wr_id, wc.qp_num, wc.src_qp) == (
                    got[side],
                    p.tgt.qp_num,
                    p.ini.qp_num,
                ), (wc, side)
                place = 64 * (number % 50)
                found = process.mr.read(1024, wc.wr_id * 1024 % (1 << 16))
                assert np.array_equal(found, p.data[place : place + 1024])
                got[side] += 1
            fresh = range(posted[side], got[side] + 48)
            await process.post(*fresh)
            posted[side] += len(fresh)
    await p.well()


@cocotb.test()
async def t_x3_every_operation(dut):
    """T-X3: WRITE, WRITE with immediate, READ, both atomics and SEND with invalidate: as on an RC
    connection; what takes a receive request takes one of the queue that it names."""
    p = await Xrc.up(dut)
    one, two = p.processes
    await one.post(0)
    await two.post(0)
    await p.ini.post_send(p.request(WrOpcode.RDMA_WRITE, 100, 5000, place=9000, to=1))
    await p.good()
    assert np.array_equal(two.mr.read(5000, 9000), p.data[100:5100])
    wr = p.request(WrOpcode.RDMA_WRITE_WITH_IMM, 0, 2048, place=4096, to=1, imm_data=0xDEADBEEF)
    await p.ini.post_send(wr)
    await p.good()
    (wc,) = await two.done()
    assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, WcOpcode.RECV_RDMA_WITH_IMM)
    assert (wc.imm_data, wc.byte_len, wc.qp_num) == (0xDEADBEEF, 2048, p.tgt.qp_num)
    assert np.array_equal(two.mr.read(2048, 4096), p.data[:2048])
    wr = p.request(WrOpcode.RDMA_READ, 20000, 3000, place=9000, to=1)
    await p.ini.post_send(wr)
    await p.good()
    assert np.array_equal(p.mr.read(3000, 20000), p.data[100:3100])
    one.mr.write(np.frombuffer((41).to_bytes(8, "little"), np.uint8), 512)
    add = p.request(WrOpcode.ATOMIC_FETCH_AND_ADD, 30000, 8, place=512, compare_add=1)
    swap = p.request(WrOpcode.ATOMIC_CMP_AND_SWP, 30008, 8, place=512, compare_add=42, swap=7)
    await p.ini.post_send([add, swap])
    await p.good(2)
    found = [int.from_bytes(p.mr.read(8, at).tobytes(), "little") for at in (30000, 30008)]
    assert found == [41, 42]
    assert int.from_bytes(one.mr.read(8, 512).tobytes(), "little") == 7
    await p.well()


@cocotb.test()
async def t_x3_send_with_invalidate(dut):
    """T-X3, X-11: the key of a region of the receive queue's protection domain becomes invalid;
    that of another one is not the target's to invalidate."""
    p = await Xrc.up(dut)
    one = p.processes[0]
    keys = []
    for process in p.processes:
        fast = await FastMR.create(process.pd, 2)
        await fast.map(4096)
        _, theirs = await connect(p.nodes, (p.pd, process.pd), (p.cq, process.cq))
        await theirs.post_send(fast.reg_wr(RIGHTS))
        (wc,) = await process.done()
        assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, WcOpcode.REG_MR)
        keys.append(fast)
    for length in (64, 3000):
        await one.post(0, size=4096)
        await p.ini.post_send(p.send(5, length, invalidate_rkey=keys[0].key, opcode=INV))
        await p.good()
        (wc,) = await one.done()
        assert (wc.wc_flags, wc.byte_len) == (WcFlags.WITH_INV, length)
        assert wc.invalidated_rkey == keys[0].key
        assert np.array_equal(one.mr.read(length), p.data[5 : 5 + length])
        # It is gone.
        await p.ini.post_send(p.request(WrOpcode.RDMA_WRITE, 0, 8, mr=keys[0], place=0))
        (wc,) = await p.done()
        assert wc.status == WcStatus.REM_ACCESS_ERR
        await p.connect()
    await one.post(1)
    await p.ini.post_send(p.send(5, 64, invalidate_rkey=keys[1].key, opcode=INV))
    (wc,) = await p.done()
    assert wc.status == WcStatus.REM_ACCESS_ERR
    (wc,) = await one.done()
    assert (wc.wr_id, wc.status) == (1, WcStatus.REM_INV_REQ_ERR)
    await p.well()


@cocotb.test()
async def t_x6_keys_of_the_receive_queue(dut):
    """T-X6: a key counts in the protection domain of the queue that the request names, whoever else
    is in the XRC domain; the rights are the target's."""
    p = await Xrc.up(dut)
    operations = (
        (WrOpcode.RDMA_WRITE, 2000),
        (WrOpcode.RDMA_READ, 2000),
        (WrOpcode.ATOMIC_FETCH_AND_ADD, 8),
    )
    for opcode, length in operations:
        before = p.processes[1].mr.read(LENGTH)
        await p.ini.post_send(p.request(opcode, 0, length, to=0, place=4096))
        await p.good()
        await p.ini.post_send(p.request(opcode, 0, length, to=0, mr=p.processes[1].mr, place=4096))
        (wc,) = await p.done()
        assert wc.status == WcStatus.REM_ACCESS_ERR, opcode
        assert np.array_equal(p.processes[1].mr.read(LENGTH), before)
        await p.connect()
    await p.connect(replace(OPTIONS, access=Access.LOCAL_WRITE))
    await p.ini.post_send(p.request(WrOpcode.RDMA_WRITE, 0, 8))
    (wc,) = await p.done()
    assert wc.status == WcStatus.REM_INV_REQ_ERR
    # A receive request names a region of the queue's domain, too.
    await p.connect()
    stray = RecvWR(9, [p.processes[1].mr.sge(0, 100)])
    await p.processes[0].srq.post_recv(stray)
    await p.ini.post_send(p.send(0, 100))
    (wc,) = await p.done()
    assert wc.status == WcStatus.REM_OP_ERR
    (wc,) = await p.processes[0].done()
    assert (wc.wr_id, wc.status, wc.qp_num) == (9, WcStatus.LOC_PROT_ERR, p.tgt.qp_num)
    await p.well()


@cocotb.test()
async def t_x7_one_queue_is_empty(dut):
    """T-X7: the message to the queue without a request waits (RNR NAK), and the one behind it to
    the other queue with it, as one connection keeps its order; both arrive once."""
    p = await Xrc.up(dut)
    one, two = p.processes
    await two.post(0)
    await p.ini.post_send([p.send(0, 700, 1, to=0), p.send(700, 700, 2, to=1)])
    await Timer(60, "us")
    assert await p.cq.poll(1) == [] and await two.cq.poll(1) == []
    assert (await p.nodes[1].counters())["out_of_buffer"] > 1
    await one.post(0)
    assert [wc.wr_id for wc in await p.good(2)] == [1, 2]
    for process, place in ((one, 0), (two, 700)):
        (wc,) = await process.done()
        assert (wc.status, wc.byte_len) == (WcStatus.SUCCESS, 700)
        assert np.array_equal(process.mr.read(700), p.data[place : place + 700])
    await p.well()


@cocotb.test()
async def t_x8_bad_network(dut):
    """T-X8: packets are lost, doubled and overtaken in both directions: each message arrives once,
    in the order of its queue, and READs and atomics among them find what they should."""
    p = await Xrc.up(dut)
    rng = random.Random(11)
    for number, wire in enumerate(p.system.testbench.wires):
        bad = f"loss=4%,duplicate=7%,reorder=4,overtaken=10%,seed={number + 5}"
        wire.impair(Impairments.parse(bad))
    expected, added = [deque(), deque()], 0
    for process in p.processes:
        await process.post(*range(40), size=1500)
        process.mr.write(bytes(8), LENGTH - 8)
    for n in range(60):
        to, kind = rng.randrange(2), rng.choice(("send", "send", "imm", "read", "add"))
        length, at = rng.choice((0, 8, 1024, 1500)), rng.randrange(LENGTH // 2)
        if kind == "send":
            wr = p.send(at, length, n, to=to)
        elif kind == "imm":
            opcode = WrOpcode.RDMA_WRITE_WITH_IMM
            wr = p.request(opcode, at, length, n, to=to, place=0xE000, imm_data=n)
        elif kind == "read":
            wr = p.request(WrOpcode.RDMA_READ, LENGTH // 2 + 2048, 2048, n, to=to, place=0xE800)
        else:
            opcode = WrOpcode.ATOMIC_FETCH_AND_ADD
            wr = p.request(opcode, LENGTH - 8, 8, n, to=0, place=LENGTH - 8, compare_add=1)
            added += 1
        if kind in ("send", "imm"):
            expected[to].append((kind, length, at, n))
        await p.ini.post_send(wr)
        (wc,) = await p.good()
        assert wc.wr_id == n
    for wire in p.system.testbench.wires:
        wire.impair()
    for process, messages in zip(p.processes, expected, strict=True):
        for place, wc in enumerate(await process.done(len(messages)) if messages else []):
            kind, length, at, n = messages.popleft()
            assert (wc.status, wc.wr_id, wc.byte_len) == (WcStatus.SUCCESS, place, length)
            assert wc.qp_num == p.tgt.qp_num
            if kind == "imm":
                assert wc.imm_data == n
                continue
            found = process.mr.read(length, place * 1500 % LENGTH)
            assert np.array_equal(found, p.data[at : at + length]), (n, place)
    assert int.from_bytes(p.processes[0].mr.read(8, LENGTH - 8).tobytes(), "little") == added
    assert (await p.nodes[1].counters())["duplicate_request"] > 3
    await p.well()


@cocotb.test()
async def t_x14_vectors(dut):
    """T-X14: the frames and the WQE are those of the vectors."""
    p = await Xrc.up(dut, processes=0)
    for number, node in enumerate(p.nodes):
        node.mac = bytes((2, 0, 0, 0, 0, number + 1))
        await node.context.add_gid(1, f"192.0.2.{number + 1}")
    there = p.nodes[1].function
    pairs = there.commands.objects.qps
    for pair in range(0x34, there.commands.limits.config.qps):
        pairs.lend(pair)  # the next receive queue is in pair 33h
    there.commands.objects.generations[0x33] = 2
    process = await Process.up(p.nodes[1].context, p.xrcd)
    p.processes.append(process)
    assert process.srq.srq_num == 0x133
    there.hints.mr_key(0x2A00)
    mr = await FastMR.create(process.pd, 2)
    await mr.map(4096, virt_addr=0x7F0000001000)
    pds, cqs = (p.pd, process.pd), (p.cq, process.cq)
    _, theirs = await connect(p.nodes, pds, cqs)
    await theirs.post_send(mr.reg_wr(RIGHTS))
    (wc,) = await process.done()
    assert wc.status == WcStatus.SUCCESS and mr.rkey == 0x2A01
    for node, qpn in zip(p.nodes, (0x11, 0x12), strict=True):
        node.function.hints.qpn(qpn)
    await p.connect(replace(OPTIONS, gid=1, psns=(0x200, 0), flow_label=1))
    await process.post(0, 1, 2)
    p.mr.write(bytes(range(8)))
    p.mr.write(bytes.fromhex("11223344"), 64)
    wire = p.system.testbench.wires[0]
    wire.capture("xrc.pcap")  # of both directions
    more = {"mr": mr, "place": 0}
    batch = [
        p.send(0, 8, 0xF3),
        p.request(WrOpcode.RDMA_WRITE_WITH_IMM, 64, 4, imm_data=0xDEADBEEF, **more),
        p.request(WrOpcode.RDMA_READ, 128, 64, **more),
        p.request(WrOpcode.ATOMIC_FETCH_AND_ADD, 256, 8, compare_add=5, **more),
    ]
    element = SendWR(0xF3, WrOpcode.SEND, [SGE(0x10000, 8, 0x2B01)])
    element.set_wr_xrc_srqn(0x133)
    assert element.pack(None) == VECTORS["WQE V-X1"]
    await p.ini.post_send(batch)
    await p.good(4)
    await p.ini.post_send(p.send(0, 8, opcode=INV, invalidate_rkey=mr.rkey))
    await p.good()
    await p.ini.post_send(p.send(0, 8, srq_num=0x134))
    (wc,) = await p.done()
    assert wc.status == WcStatus.REM_ACCESS_ERR
    wire.end_capture()
    tails = [frame[42:] for _, frame in read_pcap("xrc.pcap")]
    for name in ("V-X1", "V-X2", "V-X3", "V-X4", "V-X5", "V-X6", "V-X7"):
        assert VECTORS[name] in tails, name


@cocotb.test()
async def negotiated_with_srq_alone(dut):
    """XRC needs shared receive queues: a driver that takes it without them is refused; one that has
    not taken it has no domains and no such queue pairs."""
    p = await Xrc.up(dut, processes=1)
    node = p.nodes[0]
    await node.context.close()
    node.stop_firmware()
    alone = ALL_FEATURES & ~RdmaFeature.SRQ.mask
    await node.start(DriverOptions(features=alone))
    device = node.context.device
    assert not device.has(RdmaFeature.XRC)
    with pytest.raises(RdmaError):
        await XRCD.create(node.context)
    await device.reset()
    features = Feature.VERSION_1.mask | RdmaFeature.XRC.mask
    for mask, takes in ((features, 0), (features | RdmaFeature.SRQ.mask, Status.FEATURES_OK)):
        await device.reset()
        for half in (0, 1):
            await device.common_write("driver_feature_select", half)
            await device.common_write("driver_feature", mask >> 32 * half & 0xFFFF_FFFF)
        await device.common_write("device_status", Status.FEATURES_OK)
        assert await device.status() & Status.FEATURES_OK == takes


@cocotb.test()
async def t_x12_a_target_that_is_ready_to_receive(dut):
    """T-X12: a target that has never been in RTS receives."""
    p = await Xrc.up(dut, processes=1)
    await p.connect(receives=1)
    await p.processes[0].post(3)
    await p.ini.post_send(p.send(7, 100, place=0))
    await p.good()
    (wc,) = await p.processes[0].done()
    assert (wc.wr_id, wc.byte_len, wc.wc_flags) == (3, 100, WcFlags(0))
    await p.well()
