"""A card whose host stops answering reads: what the report says about it."""

import cocotb

from hdl.abi.enums import WrOpcode
from sim.guest.verbs import MR
from tests.nic.bench_nic import RIGHTS, Pair


@cocotb.test()
async def names_what_waits(dut):
    p = await Pair.up(dut)
    a, _ = p.nodes
    extra = await MR.create(p.pds[0], 8192, RIGHTS)  # not in any cache
    a.host.set(read_latency_ns=1e9)
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [extra.sge()], number=0xABC))
    await p.system.testbench.cycles(2000)
    report = await p.system.report()
    for line in report.splitlines():
        dut._log.info(line)
    first, second = report.split("Card 1\n")
    second, node_a, node_b = second.replace("Node b", "Node a").split("Node a\n")
    assert first.startswith("Card 0\n")
    assert "send_fetch" in first or "gather" in first
    assert "reads_outstanding 0" not in first and "reads_outstanding 0" in second
    assert "cannot be read" not in report and "without probes" not in report
    qpn = p.qps[0].qp_num
    assert f"QP {qpn:#x} (RTS): 1 sends and 0 receives outstanding" in node_a
    assert "oldest send: wr_id 0xabc RDMA_WRITE" in node_a
    assert "(RTS): 0 sends and 0 receives outstanding\n" in node_b
    for node, qp in ((node_a, p.qps[0]), (node_b, p.qps[1])):
        assert "counters: " in node and "control_requests" in node
        assert f"QP {qp.qp_num:#x} qp_cfg: state 0x3, " in node
        for table in ("qp_fetch", "qp_tx", "qp_ack", "qp_rx", "qp_reply"):
            assert f"QP {qp.qp_num:#x} {table}: " in node
    assert "do not answer" not in report


@cocotb.test()
async def does_not_hang_itself(dut):
    p = await Pair.up(dut)
    p.nodes[1].host.set(mmio_latency_ns=1e9)
    report = await p.system.report()
    assert report.count("(registers do not answer)") == 1
    assert "QP" in report.split("Node b")[1]


@cocotb.test()
async def counters_by_the_guests_driver(dut):
    """The driver reads in its own BAR what the firmware reads on the register bus."""
    p = await Pair.up(dut)
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 10_000)]))
    await p.good()
    await p.system.testbench.cycles(500)
    p.system.stop_firmware()
    for node in p.nodes:
        ours, registers = await node.context.counters(), await node.counters()
        for name in ("rx_bytes", "tx_bytes"):
            registers[name] = registers.pop(f"{name}_low") | registers.pop(f"{name}_high") << 32
        assert ours == registers
    a, b = [await node.context.hw_counters() for node in p.nodes]
    assert a["port_xmit_packets"] == b["port_rcv_packets"] > 1
    assert a["port_xmit_data"] >= 2500 and b["rx_write_requests"] >= 1
