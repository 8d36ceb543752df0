"""A card without FLUSH and ATOMIC WRITE: both are as unknown to it as any reserved number."""

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import DeviceCap, RdmaFeature, WcStatus, WrOpcode
from hdl.wire.opcodes import Operation
from sim.bench.system import QpOptions
from sim.guest.verbs import MR, RdmaError, SendWR
from sim.wire import packets as pk
from tests.nic.bench_placement import PLAIN, RIGHTS, Pair, flush_headers, way
from tests.nic.card import CONFIG


@cocotb.test()
async def t_p12_feature_off(dut):
    """T-P12: the packets are dropped as of a reserved opcode, the work requests refused; the device
    offers nothing of it, ignores the rights of a queue pair and refuses those of a region."""
    options = QpOptions(access=RIGHTS, psns=(0, 0))
    p = await Pair.up(dut, config=CONFIG, options=options, access=PLAIN, connect=False)
    context = p.nodes[1].context
    caps = DeviceCap.FLUSH_GLOBAL | DeviceCap.FLUSH_PERSISTENT | DeviceCap.ATOMIC_WRITE
    assert not context.query_device().device_cap_flags & caps
    assert not context.device.features & RdmaFeature.PLACEMENT.mask
    before = await p.nodes[1].counters()
    bodies = {
        Operation.FLUSH: flush_headers(p.mrs[1], 0, 9),
        Operation.ATOMIC_WRITE: flush_headers(p.mrs[1], 0, 8)[4:] + bytes(8),
    }
    for opcode, body in bodies.items():
        p.system.testbench.wires[1].inject(pk.build(opcode, payload=body, **way(p, 0)))
    await Timer(10, "us")
    after = await p.nodes[1].counters()
    assert after["rx_drops_opcode"] - before["rx_drops_opcode"] == len(bodies)
    assert p.system.testbench.wires[1].take() is None
    for opcode in (WrOpcode.FLUSH, WrOpcode.ATOMIC_WRITE):
        await p.ends(SendWR(1, opcode), WcStatus.LOC_QP_OP_ERR, options)
    try:
        await MR.create(p.pds[1], 4096, RIGHTS)
    except RdmaError:
        pass
    else:
        raise AssertionError("a right that the card does not know")
    await p.well()
