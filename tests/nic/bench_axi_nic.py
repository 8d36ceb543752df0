"""RDMA between two QPs of one card, whose host, registers and wire are cocotbext-axi's."""

import cocotb

from hdl.ports.counter_names import AROUND
from sim.bench.system import System
from tests.nic.axi_platform import AxiNicTestbench
from tests.nic.small_traffic import SmallTraffic
from tests.nic.test_axi_nic import CONFIG


@cocotb.test()
async def rdma(dut):
    """SEND, WRITE and READ of a few sizes; every byte, every completion, interrupts by wires."""
    testbench = AxiNicTestbench(dut, config=CONFIG, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=400_000, loopback=False)
    node, host = system.nodes[0], testbench.hosts[0]
    traffic = await SmallTraffic.start(node, testbench)
    before = host.interrupts.received
    requests = await traffic.run()
    assert host.interrupts.received > before and not host.interrupts.spurious
    counters = await node.counters()
    assert not [name for name in AROUND if counters[name]]
    assert counters["rx_packets"] == len(testbench.seen) > requests
    dut.nic0_mac_tx_drops.value, dut.nic0_mac_rx_drops.value = 3, 5
    counters = await node.counters()
    assert (counters["mac_tx_drops"], counters["mac_rx_drops"]) == (3, 5)
