"""cocotbext-axi's streams and memory as hosts and wire, on the echoing cards."""

import os
import random

import cocotb
import numpy as np

from sim.measure.simspeed.axi import AxiTestbench
from tests.sim.bench_models import Card
from tests.sim.echo import REGISTERS
from tests.sim.test_models import config


@cocotb.test()
async def hosts_and_wire(dut):
    """Registers in every size, copies of any alignment, interrupts, frames from card to card."""
    bench = AxiTestbench(dut, config=config(int(os.environ["WIDTH"])), memory=1 << 20)
    await bench.start()
    deadline = bench.deadline(100_000)
    host, rng = bench.hosts[0], random.Random(1)
    card = Card(host)
    await card.put("scratch", 0x11223344)
    assert await card.get("scratch", 1, 2) == 0x22 and await card.get("scratch", 2, 2) == 0x1122
    await host.mmio.write(1, 0, REGISTERS["scratch"] + 2, 2, 0xCDEF)
    assert await card.get("scratch") == 0xCDEF3344
    assert await bench.management[0].read(REGISTERS["scratch"]) == 0xCDEF3344

    host.memory.bytes[:] = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    image = host.memory.bytes.copy()
    await card.set_up()
    for length in (1, 7, 64, 65, 1000, 4096):
        source, target = rng.randrange(1 << 18), rng.randrange(1 << 19, 3 << 18)
        await card.copy(source, target, length)
        image[target : target + length] = image[source : source + length]
        assert (host.memory.bytes == image).all()
    assert card.interrupts == await card.get("done") == 6 and not host.interrupts.spurious

    other = Card(bench.hosts[1])
    for each in (card, other):
        await each.put("echo", 1)
        assert await each.get("echo") == 1
    frames = [rng.randbytes(n) for n in (60, 64, 65, 1514)]
    for frame in frames:
        bench.inject(0, frame)
    await bench.cycles(4000)
    assert set(bench.seen) == set(frames) and len(bench.seen) >= 10, [len(f) for f in bench.seen]
    deadline.cancel()
