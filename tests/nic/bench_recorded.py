"""Two cards talk over many QPs at once; then one card takes the place of each in the recording."""

import random
from pathlib import Path

import cocotb
import numpy as np

from hdl.abi.enums import Access, Mtu, SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, RecvWR, SendWR
from sim.models.platform import Wire
from sim.replay.bench import play_run
from sim.replay.plan import Plan
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
OPCODES = [
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.RDMA_READ,
]
PATH = Path("recorded.pcap").resolve()
#: Messages of each end of a QP; room for one; VLAN and priority of the second address.
MESSAGES, ROOM, VLAN, PRIORITY = 5, 13_000, 100, 5


@cocotb.test()
async def many_connections(dut):
    """Ten QPs: every MTU, IPv4 without and IPv6 with VLAN tag, both directions, every operation."""
    rng = random.Random(31)
    system = await System.start(dut, CONFIG)
    a, b = system.nodes
    for number, node in enumerate((a, b), 1):
        await node.add_address(1, f"fd00::{number}", VLAN)
        node.host.set(mmio_latency_ns=0)
    pds = [await node.context.alloc_pd() for node in (a, b)]
    cqs = [await CQ.create(node.context, 512) for node in (a, b)]
    size = 20 * MESSAGES * ROOM
    mrs = [await MR.create(pd, size, RIGHTS, offset=11) for pd in pds]
    for seed, mr in enumerate(mrs):
        mr.write(np.random.default_rng(seed).integers(0, 256, mr.length, np.uint8))
    pairs = []
    for number, mtu in enumerate([mtu for mtu in Mtu for _ in (0, 1)]):
        psns = (0xFFFFF0 + number, rng.randrange(1 << 24))  # the first wraps
        options = QpOptions(mtu=mtu, psns=psns, gid=number % 2, priority=PRIORITY * (number % 2))
        pairs.append(await connect((a, b), pds, cqs, options))
    system.stop_firmware()
    for node in (a, b):
        node.host.set(read_jitter_ns=400, chunk_bytes=64, seed=9)

    Wire.capture(str(PATH))
    wanted = [0, 0]
    for number, pair in enumerate(pairs):
        mtu = list(Mtu)[number // 2].octets
        for side in (0, 1):
            me, peer, requests = mrs[side], mrs[1 - side], []
            for k in range(MESSAGES):
                place = ((2 * number + side) * MESSAGES + k) * ROOM
                length = rng.choice((0, 1, mtu - 1, mtu, mtu + 1, rng.randrange(3 * mtu)))
                opcode = OPCODES[(k + number) % len(OPCODES)]
                sges = [me.sge(place + 1, length)] if length else []
                flags = SendFlags.SIGNALED | rng.choice((SendFlags(0), SendFlags.SOLICITED))
                if opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
                    flags = SendFlags.SIGNALED
                request = SendWR(number << 8 | k, opcode, sges, flags)
                request.imm_data = rng.randrange(1 << 32)
                if opcode in OPCODES[2:]:
                    request.set_wr_rdma(peer.rkey, peer.iova + place + 2)
                if opcode not in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
                    there = [peer.sge(place + 2, length)] if length else []
                    await pair[1 - side].post_recv(RecvWR(1 << 32, there))
                    wanted[1 - side] += 1
                requests.append(request)
                wanted[side] += 1
            await pair[side].post_send(requests)
    for cq, count in zip(cqs, wanted, strict=True):
        assert all(wc.status == WcStatus.SUCCESS for wc in await cq.wait(count))
    await system.testbench.cycles(2000)  # until the last ACK is over
    Wire.end_capture()
    system.testbench.stop()

    plan = Plan(PATH)
    assert len(plan.suitable) == len(plan.connections) == 10, [c.reason for c in plan.connections]
    assert not plan.left_out
    free = {}
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert not refused
        assert len(runs) == 1  # all ten QPs at once
        report = await play_run(dut, CONFIG, PATH.name, runs[0])
        assert report.good, (report.error, report.stall, [str(d) for d in report.differences[:5]])
        # An ACK that the card repeats may have answered a copy of a request that is not in the
        # capture, so a copy may be fed too.
        packets = sum(len(one.packets) for one in plan.suitable)
        copies = sum(len(some) for one in plan.suitable for some in one.again.values())
        assert packets <= report.packets + report.fed <= packets + copies
        free |= report.free
    dut._log.info("free differences: %s", free)
    assert "order of QPs" in free
