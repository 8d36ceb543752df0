"""Copies, frames and pauses on the echoing cards; what happened, and when, goes into a file."""

import hashlib
import json
import os
import random

import cocotb
import numpy as np
from cocotb.triggers import Timer

from sim.models.platform import Wire
from tests.sim.bench_models import Card, start
from tests.sim.echo import REGISTERS

SEED = int(os.environ.get("SEED", "1"))


def facts(view):
    """A shared structure as a dictionary."""
    return {name: getattr(view, name) for name, _ in view._fields_}


async def pause(rng):
    """Ends in, between and on edges of the clock."""
    length = rng.choice((1, 1000, 4000, 4001, 250_000, 2_000_000, 30_000_000, 300_000_000))
    await Timer(length + rng.randrange(8) * 500, "ps")


@cocotb.test()
async def traffic(dut):
    """Both hosts copy, a frame goes from card to card, Python sends some."""
    bench = await start(dut, 4_000_000)
    trace = []
    Wire.capture("jump.pcap")

    async def copies(host, seed):
        rng = random.Random(seed)
        host.memory.bytes[: 1 << 20] = np.random.default_rng(9).integers(0, 256, 1 << 20, np.uint8)
        card = Card(host)
        await card.set_up()
        for number in range(25):
            jitter = rng.choice((0, 700))
            host.set(
                read_latency_ns=rng.choice((50, 500, 5000)),
                read_jitter_ns=jitter,
                write_jitter_ns=jitter,
                write_gbps=rng.choice((0, 3)),
                stall_write=0.5 if number % 6 == 5 else 0,
                seed=seed + number,
            )
            await card.copy(
                rng.randrange(1 << 19), rng.randrange(1 << 20, 2 << 20), 1 << number // 2
            )
            trace.append((seed, host.now(), await card.get("done"), host.now()))
            await pause(rng)

    async def frames():
        rng = random.Random(SEED)
        await Card(bench.hosts[1]).put("echo", 1)
        for number in range(12):
            await pause(rng)
            bench.wires[number % 2].inject(rng.randbytes(60 + 99 * number), earliest_ns=5000)
            await bench.hosts[0].mmio.write(1, 0, REGISTERS["scratch"], 4, number)
            await bench.cycles(rng.randrange(1, 40))
            bench.wires[0].hold(number % 5 == 4)
            trace.append(("frame", bench.hosts[1].now()))

    tasks = [cocotb.start_soon(copies(h, SEED + 100 * i)) for i, h in enumerate(bench.hosts)]
    for task in [*tasks, cocotb.start_soon(frames())]:
        await task
    bench.wires[0].hold(False)
    await Timer(1_000_000, "ns")
    Wire.end_capture()
    for host in bench.hosts:
        trace.append((facts(host.stats), hashlib.sha256(host.memory.bytes).hexdigest()))
    trace.append([facts(wire.stats) for wire in bench.wires])
    with open(os.environ["TRACE"], "w") as file:
        json.dump({"trace": trace, "clock": facts(bench.clock)}, file)
