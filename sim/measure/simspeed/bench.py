"""The same WRITEs on any platform, inside the simulation: ``command`` starts it.

Its job: ``width``, ``messages``, ``size``, ``models`` (compiled ones, or cocotbext-axi). It keeps
``cycles``, ``seconds``, ``bytes_verified`` and ``skipped`` (cycles left out; none may be).
"""

from __future__ import annotations

import time
from typing import Any

import cocotb
import numpy as np

from hdl.abi.enums import Access, WrOpcode
from hdl.config import NicConfig
from sim.bench.job import Job
from sim.bench.system import System, connect
from sim.bench.testbench import Testbench
from sim.guest.verbs import CQ, MR, WC, SendWR
from sim.measure.flow import compare, finished

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE
MEMORY = 64 << 20
DEADLINE_CYCLES = 50_000_000
PATIENCE_NS = 50_000_000


def _testbench(dut: Any, spec: dict[str, Any]) -> Any:
    config = NicConfig(width=spec["width"])
    if spec["models"]:
        return Testbench(dut, config=config, memory=MEMORY)  # no jumps: all cycles are run
    from sim.measure.simspeed.axi import AxiTestbench

    return AxiTestbench(dut, config=config, memory=MEMORY)


@cocotb.test()
async def writes(dut: Any) -> None:
    """Post all messages, wait for all completions; compare what has arrived."""
    job = Job()
    count, size = job.spec["messages"], job.spec["size"]
    testbench = _testbench(dut, job.spec)
    job.say("bringing up")
    system = await System.on(testbench, deadline_cycles=DEADLINE_CYCLES)
    nodes = system.nodes * (3 - len(system.nodes))  # one card talks to itself
    if len(system.nodes) == 1 and job.spec["models"]:
        testbench.wires[0].connect(testbench.wires[0])
    pds = [await node.context.alloc_pd() for node in nodes]
    cqs = [await CQ.create(node.context, 2 * count) for node in nodes]
    mrs = [await MR.create(pd, count * size, RIGHTS) for pd in pds]
    qps = await connect(nodes, pds, cqs)
    data = np.random.default_rng(1).integers(0, 256, count * size, np.uint8)
    mrs[0].write(data)
    mrs[1].write(~data)
    system.stop_firmware()
    for node in system.nodes:
        node.host.set()

    job.say(f"{count} WRITEs of {size} bytes")
    requests = [SendWR(i, WrOpcode.RDMA_WRITE, [mrs[0].sge(i * size, size)]) for i in range(count)]
    for i, request in enumerate(requests):
        request.set_remote(mrs[1].rkey, mrs[1].iova + i * size)
    begun, started = nodes[0].host.now(), time.perf_counter()
    done: list[WC] = []
    while requests or len(done) < count:
        room = 32 - (count - len(requests) - len(done))  # half a ring
        if requests and room:
            await qps[0].post_send(requests[:room])
            del requests[:room]
        done += await cqs[0].wait(1, timeout_ns=PATIENCE_NS)
    seconds = time.perf_counter() - started
    cycles = (nodes[0].host.now() - begun) * 1000 // testbench.period_ps
    finished(done)
    await testbench.cycles(500)  # until the last bytes are visible
    got = mrs[1].read(count * size)
    compare(f"{count} WRITEs", "the region", got, data)
    skipped = testbench.clock.skipped if job.spec["models"] else 0
    job.keep(cycles=cycles, seconds=seconds, bytes_verified=got.size, skipped=skipped)
