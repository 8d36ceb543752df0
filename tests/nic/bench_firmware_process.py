"""A card whose firmware is another process, ``rocinante firmware``: commands, traffic, restarts."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, QpAttrMask, QpState, QpType, SendFlags, WcStatus, WrOpcode
from sim.bench.firmware_process import ProcessNode
from sim.bench.system import Node, connect
from sim.bench.testbench import Testbench
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import CQ, MR, QP, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR
from tests.nic.card import CONFIG

FOLDER = Path(os.environ.get("ROCINANTE_FOLDER", "."))
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
LENGTH = 1 << 14
#: The firmware may take long in simulated time, as its process may be slow in real time.
PATIENT = DriverOptions(timeout_ns=1_000_000_000)
WAIT_NS = 100_000_000
#: How many firmwares end in the middle of a command.
KILLS = int(os.environ.get("ROCINANTE_KILLS", "4"))


class Pair:
    """A node with a firmware process and a plain one, each with a region, a CQ and a QP."""

    @classmethod
    async def up(cls, dut, name, *options):
        self = cls()
        self.testbench = Testbench(dut, config=CONFIG, jump=True)
        await self.testbench.start()
        self.testbench.deadline(400_000_000)
        folder = FOLDER / name
        folder.mkdir()
        self.remote = ProcessNode(self.testbench, 0, folder=folder, options=options)
        self.nodes = [self.remote, Node(self.testbench, 1)]
        for node in self.nodes:
            await node.start(PATIENT)
            node.host.set(mmio_latency_ns=0)
        self.pds = [await n.context.alloc_pd() for n in self.nodes]
        self.cqs = [await CQ.create(n.context, 64) for n in self.nodes]
        self.mrs = [await MR.create(pd, LENGTH, RIGHTS) for pd in self.pds]
        self.qps = await connect(self.nodes, self.pds, self.cqs)
        rng = np.random.default_rng(1)
        for mr in self.mrs:
            mr.write(rng.integers(0, 256, LENGTH, np.uint8))
        return self

    async def post(self, opcode, at, length, side=0):
        here, there = self.mrs[side], self.mrs[1 - side]
        wr = SendWR(1, opcode, [here.sge(at, length)], SendFlags.SIGNALED)
        if opcode == WrOpcode.SEND:
            await self.qps[1 - side].post_recv(RecvWR(2, [there.sge(at, length)]))
        else:
            wr.set_wr_rdma(there.rkey, there.iova + at)
        await self.qps[side].post_send(wr)

    async def good(self, side=0):
        (found,) = await self.cqs[side].wait(1, timeout_ns=WAIT_NS)
        assert found.status == WcStatus.SUCCESS, found

    async def exchange(self, at, length):
        """A WRITE, a READ and a SEND in both directions, each verified."""
        for side in (0, 1):
            for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND):
                source, sink = self.mrs[side], self.mrs[1 - side]
                if opcode == WrOpcode.RDMA_READ:
                    source, sink = sink, source
                source.write((source.read(length, at) + 1).astype(np.uint8), at)
                await self.post(opcode, at, length, side)
                await self.good(side)
                if opcode == WrOpcode.SEND:
                    await self.good(1 - side)
                await self.testbench.cycles(300)
                assert np.array_equal(sink.read(length, at), source.read(length, at)), opcode

    async def states(self):
        return [(await qp.query()).qp_state for qp in self.qps]

    async def take_down(self):
        """DESTROY of everything, and the firmware's end."""
        for made in (*self.qps, *self.mrs, *self.cqs, *self.pds):
            await made.close()
        for node in self.nodes:
            await node.context.close()
            assert not node.host.faults, node.host.faults
        self.remote.signal(signal.SIGTERM)
        assert await self.remote.ended() == 0
        self.remote.server.close()

    def events(self):
        """The lines of the firmware's log."""
        return [json.loads(line) for line in self.remote.log.read_text().splitlines()]


@cocotb.test()
async def commands_and_traffic(dut):
    """The guest driver is served by the other process, which says what it refuses and ends well."""
    pair = await Pair.up(dut, "commands", "--log-level", "debug")
    await pair.exchange(100, 5000)
    assert await pair.states() == [QpState.RTS] * 2
    await pair.take_down()
    events = pair.events()
    assert [events[0]["event"], events[-1]["event"]] == ["started", "stopped"], events
    served = [line for line in events if line["event"] == "served"]
    assert len(served) == events[-1]["served"] > 10


async def types(pair):
    """Pairs and regions of the card that are in use, of those with the lowest numbers."""
    counts = {"qp_cfg": 16, "mr": 16}
    registers = pair.remote.registers
    return [
        (table, index)
        for table, count in counts.items()
        for index in range(count)
        if (await registers.read_fields(table, index, "type"))["type"]
    ]


@cocotb.test()
async def killed_in_mid_traffic(dut):
    """Queue pairs go on without a firmware. The next one serves their old handles and gives new
    objects other numbers."""
    pair = await Pair.up(dut, "killed", "--state", str(FOLDER / "killed.state"))
    messages = 0

    async def traffic():
        nonlocal messages
        while True:
            await pair.exchange(messages % 7, 3000)
            messages += 6

    going = cocotb.start_soon(traffic())

    async def more(count=2):
        wanted = messages + count
        while messages < wanted:
            await Timer(1, "us")

    await more()
    pair.remote.stop_firmware()
    await more(12)
    assert not pair.remote.server.connected
    pair.remote.launch()
    await more()
    going.cancel()
    await Timer(100, "us")  # what was posted last completes
    for cq in pair.cqs:
        await cq.poll(64)
    qp = pair.qps[0]
    assert (await qp.query()).qp_state == QpState.RTS
    await qp.modify(QPAttr(qp_state=QpState.SQD), QpAttrMask.STATE)
    await qp.modify(QPAttr(qp_state=QpState.RTS), QpAttrMask.STATE)
    await pair.exchange(1, 5000)
    old = [(qp.qp_num, mr.lkey) for qp, mr in zip(pair.qps, pair.mrs, strict=True)]
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    other = await QP.create(pair.pds[0], QPInitAttr(QpType.RC, pair.cqs[0], pair.cqs[0], cap))
    region = await MR.create(pair.pds[0], 4096, RIGHTS)
    assert (other.qp_num, region.lkey) not in old and other.qp_num != qp.qp_num
    await other.close()
    await region.close()
    await qp.modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
    await pair.take_down()
    taken = [line["taken_over"] for line in pair.events() if line["event"] == "started"]
    assert taken == [False, True]
    assert await types(pair) == []


@cocotb.test()
async def killed_in_mid_command(dut):
    """The firmware ends at any register access of control commands, time after time. Every command
    is answered once by the next one, traffic of another queue pair goes on, and nothing leaks."""
    pair = await Pair.up(dut, "commands_killed", "--state", str(FOLDER / "command.state"))
    rng = random.Random(1)
    lives, rounds = 0, 0

    async def kill():
        nonlocal lives
        while lives < KILLS:
            pair.remote.server.leave_after = rng.randrange(5, 250)
            while pair.remote.server.connected:
                await Timer(1, "us")
            pair.remote.stop_firmware()
            await Timer(rng.randrange(1, 30), "us")
            pair.remote.server.leave_after = None
            pair.remote.launch()
            lives += 1

    cocotb.start_soon(kill())
    while lives < KILLS or not rounds:
        others = await connect(pair.nodes, pair.pds, pair.cqs)
        region = await MR.create(pair.pds[0], 4096, RIGHTS)
        await pair.exchange(rounds, 3000)
        mine, pair.qps = pair.qps, others
        await pair.exchange(rounds, 2000)
        pair.qps = mine
        await region.close()
        for qp in others:
            await qp.close()
        rounds += 1
    await pair.take_down()
    assert await types(pair) == []
