"""What ``perf`` says when nothing completes, and when a byte is wrong."""

import os
import re
from pathlib import Path

import cocotb
import pytest

from sim.bench.system import System
from sim.measure.perf import plan as plans
from sim.measure.perf.bandwidth import bandwidth
from sim.measure.perf.latency import latency
from sim.measure.perf.plan import Plan
from sim.measure.perf.traffic import Ends

WIDTH = int(os.environ.get("ROCINANTE_WIDTH", "64"))
FEW = {"sizes": (64,), "width": WIDTH, "tx_depth": 16, "cq_mod": 4, "post_list": 4, "iters": 4}


async def ends_of(dut, op):
    plan = Plan(op=op, **FEW)
    ends = Ends(await System.start(dut, plan.config), plan)
    await ends.set_up(dut._log.info)
    return ends


@cocotb.test()
async def stall(dut):
    """The host answers no more reads: where everything stands is in the failure."""
    ends = await ends_of(dut, "write_bw")
    ends.sides[0].node.host.set(read_latency_ns=1e9)
    usual, plans.PATIENCE_US = plans.PATIENCE_US, 30
    with pytest.raises(AssertionError) as caught:
        await bandwidth(ends, 64, Path("stall.pcap"))
    plans.PATIENCE_US = usual
    text = str(caught.value)
    assert re.match(r"Nothing has come to node a for \d+(\.\d+)? us\nCard 0\n", text)
    assert "16 sends and 0 receives outstanding, oldest send: wr_id 0x0 RDMA_WRITE" in text


@cocotb.test()
async def wrong_byte(dut):
    """Each operation notices one byte that is not what was to be sent."""
    for op, work, source in (
        ("write_bw", bandwidth, 0),
        ("send_bw", bandwidth, 0),
        ("read_bw", bandwidth, 1),
        ("write_lat", latency, 0),
        ("send_lat", latency, 0),
        ("read_lat", latency, 1),
    ):
        ends = await ends_of(dut, op)
        region = ends.sides[source].source
        write = region.write

        def changed(data, write=write):
            data = data.copy()
            data[64 + 6] ^= 0x10
            write(data)

        region.write = changed
        with pytest.raises(AssertionError, match="1 bytes of message 1 differ, the first at 6"):
            await work(ends, 64, Path("wrong.pcap"))
        ends.system.testbench.stop()
