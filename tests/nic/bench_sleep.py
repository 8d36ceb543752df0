"""Two cards at work and asleep, each at its own times; what happened, and when, goes into a file
(test_jump.py)."""

import hashlib
import json
import os
import random

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import SendFlags, WrOpcode
from sim.bench.system import QpOptions, together
from sim.guest.verbs import RecvWR, SendWR
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from tests.nic.bench_jump import OPCODES, RECEIVES, facts
from tests.nic.bench_nic import Pair

SEED = int(os.environ.get("SEED", "1"))
ROUNDS = 8


def note_interrupts(side, host, trace):
    """Write down when which interrupt comes to a host."""
    usual = host.interrupts.arrived

    def arrived(addr, data, time):
        trace.append((side, addr, data, time, host.now()))
        usual(addr, data, time)

    host.interrupts.arrived = arrived


async def talk(p, side, trace):
    """Requests of one side, some behind each other, with pauses of a few cycles or many."""
    rng = random.Random(f"{SEED} {side}")
    for number in range(ROUNDS):
        wrs = []
        for _ in range(rng.choice((1, 1, 3))):
            opcode, length = rng.choice(OPCODES), rng.choice((1, 64, 1000, 9000))
            wr = SendWR(number, opcode, [p.mrs[side].sge(number, length)], SendFlags.SIGNALED)
            if opcode != WrOpcode.SEND:
                other = p.mrs[1 - side]
                wr.set_wr_rdma(other.rkey, other.iova + 50_000 * side)
            if opcode in RECEIVES:
                sink = p.mrs[1 - side].sge(100_000, 10_000)
                await p.qps[1 - side].post_recv(RecvWR(1000 + number, [sink]))
            wrs.append(wr)
        await p.qps[side].post_send(wrs)
        await p.cqs[side].req_notify()
        if rng.random() < 0.3:
            p.system.testbench.wires[1 - side].inject(bytes(60 + number))  # nobody's
        await Timer(rng.choice((1, 4000, 700_000, 9_000_000)) + rng.randrange(5000), "ps")
        trace.append((side, number, p.nodes[side].host.now()))


@cocotb.test()
async def two_cards(dut):
    p = await Pair.up(dut, qp=QpOptions(timeout=3, min_rnr_timer=1))
    bench, trace = p.system.testbench, []
    for side, (node, wire) in enumerate(zip(p.nodes, bench.wires, strict=True)):
        note_interrupts(side, node.host, trace)
        node.host.set(
            mmio_latency_ns=100 * SEED,
            read_latency_ns=300 + 111 * SEED,
            read_jitter_ns=300 * SEED,
            write_jitter_ns=700,
            write_gbps=(0, 6)[side],  # the other card has to wait for this one
            seed=SEED + side,
        )
        wire.settings.buffer_bytes = 3000
        if SEED % 2:
            wire.impair(Impairments.parse(f"loss=3%,reorder=4,overtaken=5%,seed={SEED + side}"))
    Wire.capture("sleep.pcap")
    await together(*(talk(p, side, trace) for side in (0, 1)))
    await Timer(80, "us")
    p.system.stop_firmware()
    await Timer(20, "us")
    Wire.end_capture()
    for node, wire, cq in zip(p.nodes, bench.wires, p.cqs, strict=True):
        trace += [[(wc.wr_id, wc.status) for wc in await cq.poll(64)]]
        trace += [await node.counters(), facts(node.host.stats), facts(wire.stats)]
        trace += [hashlib.sha256(node.host.memory.bytes).hexdigest(), node.host.now()]
    with open(os.environ["TRACE"], "w") as file:
        json.dump({"trace": trace, "clock": facts(bench.clock)}, file)
