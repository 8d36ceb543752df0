"""A card without MEMCPY: it is as unknown to it as any other number."""

import cocotb

from hdl.abi.enums import RdmaFeature, WcStatus, WrOpcode
from sim.bench.system import QpOptions
from sim.guest.verbs import SendWR
from tests.nic.bench_placement import PLAIN, Pair
from tests.nic.card import CONFIG


@cocotb.test()
async def feature_off(dut):
    """The device offers nothing of it, and refuses the work request."""
    options = QpOptions(access=PLAIN)
    p = await Pair.up(dut, config=CONFIG, options=options, access=PLAIN)
    context = p.nodes[0].context
    assert not context.query_device().max_memcpy_length
    assert not context.device.features & RdmaFeature.MEMCPY.mask
    before = p.randomize(0, 1)
    wr = SendWR(1, WrOpcode.MEMCPY, [p.mrs[0].sge(0, 8), p.mrs[0].sge(100, 8)])
    await p.connect(options)
    await p.qps[0].sq.post_all(wr, lambda one: one.pack(None))
    (wc,) = await p.done()
    assert wc.status == WcStatus.LOC_QP_OP_ERR
    assert (p.mrs[0].read(len(before)) == before).all()
    await p.well()
