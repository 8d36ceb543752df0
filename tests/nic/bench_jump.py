"""A card talks to itself, with pauses; what happened, and when, goes into a file (test_jump.py)."""

import hashlib
import json
import os
import random

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import SendFlags, WrOpcode
from hdl.common.epoch import EPOCH
from sim.bench.system import QpOptions, System
from sim.guest.verbs import RecvWR
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from tests.nic.bench_nic import CONFIG, Pair

SEED = int(os.environ.get("SEED", "1"))
OPCODES = [WrOpcode.SEND, WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE_WITH_IMM]
RECEIVES = (WrOpcode.SEND, WrOpcode.RDMA_WRITE_WITH_IMM)
MESSAGES, WITH_FIRMWARE = 24, 8


def facts(view):
    """A shared structure as a dictionary."""
    return {name: getattr(view, name) for name, _ in view._fields_}


async def up(dut):
    """Two QPs of one card whose wire leads back to it."""
    pair = Pair(await System.start(dut, CONFIG, cards=1, loopback=False))
    (wire,) = pair.system.testbench.wires
    wire.connect(wire)
    pair.nodes = pair.nodes * 2
    pair.nodes[0].host.set(mmio_latency_ns=0)
    await pair.objects(1 << 17, QpOptions(timeout=5, min_rnr_timer=7))  # 131 us, 120 us
    return pair


async def while_a_timer_runs(bench, rng):
    """Look at the time, and wake the clock inside its ticks and beyond some of them."""
    for _ in range(rng.randrange(1, 5)):
        await Timer(
            rng.choice((1000, 1_028_000, 9_000_000, 40_000_000)) + rng.randrange(5000), "ps"
        )
        bench.wires[0].inject(bytes(77))


@cocotb.test()
async def pauses(dut):
    rng = random.Random(SEED)
    p = await up(dut)
    bench, node, trace = p.system.testbench, p.nodes[0], []
    host, epoch_ns = node.host, EPOCH * bench.period_ps // 1000
    usual = host.interrupts.arrived

    def arrived(addr, data, time):
        trace.append((addr, data, time, host.now()))
        usual(addr, data, time)

    host.interrupts.arrived = arrived
    host.set(
        read_latency_ns=400 + 333 * SEED,
        read_jitter_ns=300 * SEED,
        write_jitter_ns=700,
        seed=SEED,
    )
    Wire.capture("pauses.pcap")
    for number in range(MESSAGES):
        if number < WITH_FIRMWARE:  # which arms the CQ
            await p.cqs[rng.choice((0, 1))].req_notify()
        elif number == WITH_FIRMWARE:
            p.system.stop_firmware()  # from now on nothing at all happens in the pauses
        opcode = rng.choice(OPCODES)
        length = rng.choice((1, 64, 1000, 4096, 9000))
        wire, receive = bench.wires[0], RecvWR(number, [p.mrs[1].sge(0, 10_000)])
        lost, late = number % 4 == 1, number % 4 == 3  # the request; the receive WQE
        if opcode in RECEIVES and not late:
            await p.qps[1].post_recv(receive)
        if lost:
            wire.impair(Impairments(loss=1))
        flags = SendFlags.SIGNALED | SendFlags.SOLICITED
        sges = [p.mrs[0].sge(number, length)]
        await p.qps[0].post_send(p.request(opcode, sges, number=number, flags=flags))
        if lost or late:
            await while_a_timer_runs(bench, rng)
            wire.impair()
        if opcode in RECEIVES and late:
            await p.qps[1].post_recv(receive)
        for side in (0, 1) if opcode in RECEIVES else (0,):
            (found,) = await p.good(side=side)
            trace.append((side, found.wr_id, host.now()))
        # Some end between edges, on one, or beyond the end of an epoch.
        pause_ns = rng.choice((3, 4, 500, 4001, 20_000, epoch_ns - 2000, 1.1 * epoch_ns))
        await Timer(int(pause_ns * 1000) + rng.randrange(4), "ps")
        if number % 5 == 0:
            await bench.cycles(rng.randrange(1, 300))
            trace.append((number, host.now()))
        if number % 7 == 0:
            bench.wires[0].inject(bytes(100 + number))  # nobody's: it is counted
    # Nothing but a timer goes on, and most of its ticks change nothing.
    wire.impair(Impairments(loss=1))
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, sges))
    await Timer(20, "us")
    before = bench.clock.jumps
    await Timer(60, "us")
    waiting = bench.clock.jumps - before
    wire.impair()
    await p.good()
    await Timer(3 * epoch_ns, "ns")
    Wire.end_capture()
    trace += [await node.counters(), facts(host.stats), facts(bench.wires[0].stats)]
    trace += [hashlib.sha256(host.memory.bytes).hexdigest(), host.now()]
    with open(os.environ["TRACE"], "w") as file:
        json.dump({"trace": trace, "clock": facts(bench.clock) | {"waiting": waiting}}, file)
