"""Queue pairs of one card that talk to each other, beside those that talk to another card."""

from __future__ import annotations

import random

import cocotb

from hdl.abi.enums import SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System
from sim.guest.verbs import SendWR
from tests.nic.card import CONFIG
from tests.nic.pair import LENGTH, Pair


async def up(dut) -> System:
    system = await System.start(dut, CONFIG)
    for node in system.nodes:
        node.host.set(mmio_latency_ns=0)
    return system


@cocotb.test()
async def one_card_beside_two(dut):
    """Each byte is verified, and each packet is counted where it went."""
    a, b = (await up(dut)).nodes
    pairs = [await Pair(nodes, n).make() for n, nodes in enumerate(([a, a], [a, b], [b, a]))]

    async def talk(pair: Pair, seed: int) -> None:
        for turn in range(6):
            await pair.exchange(random.Random(seed + turn))

    for task in [cocotb.start_soon(talk(pair, 100 * n)) for n, pair in enumerate(pairs)]:
        await task
    await a.testbench.cycles(3000)  # the last acknowledgements arrive
    here, there = await a.counters(), await b.counters()
    assert here["loopback_packets"] > 30 and there["loopback_packets"] == 0
    assert here["tx_packets"] - here["loopback_packets"] == there["rx_packets"]
    assert here["rx_packets"] - here["loopback_packets"] == there["tx_packets"]
    assert not any(count for name, count in here.items() if "drops" in name), here


@cocotb.test()
async def everything_at_once(dut):
    """Long messages both ways, while the other card sends as fast as it can: nobody is stuck."""
    a, b = (await up(dut)).nodes
    pairs = [await Pair(nodes, n).make() for n, nodes in enumerate(([a, a], [a, a], [b, a]))]
    each = 6
    for pair in pairs:
        for side in (0, 1):
            here, there = pair.mrs[side], pair.mrs[1 - side]
            for n in range(each):
                read = n % 3 == 2
                opcode = WrOpcode.RDMA_READ if read else WrOpcode.RDMA_WRITE
                wr = SendWR(n, opcode, [here.sge(0, LENGTH)], SendFlags.SIGNALED)
                wr.set_wr_rdma(there.rkey, there.iova)
                await pair.qps[side].post_send(wr)
    for pair in pairs:
        for side in (0, 1):
            await pair.good(side, each, wait_ns=3_000_000)
    counters = await a.counters()
    assert counters["local_ack_timeout_err"] == counters["packet_seq_err"] == 0, counters
    for node in (a, b):
        assert not node.host.faults, node.host.faults


@cocotb.test()
async def switched_off(dut):
    """Without loopback the frames leave, and the other card drops them: they are not for it."""
    a, b = (await up(dut)).nodes
    pair = await Pair([a, a], 1).make(options=QpOptions(timeout=4))  # 65.5 us
    await pair.exchange(random.Random(1))
    turned = (await a.counters())["loopback_packets"]
    await a.registers.set_port(a.mac, lossless=True, loopback=False)
    await pair.post(WrOpcode.RDMA_WRITE, 0, 100)
    await a.testbench.cycles(3000)
    assert (await a.counters())["loopback_packets"] == turned
    assert (await b.counters())["rx_drops_mac"] >= 1
    # Switched on again, the message arrives with its next try.
    await a.registers.set_port(a.mac, lossless=True, loopback=True)
    (wc,) = await pair.cqs[0].wait(1, timeout_ns=1_000_000)
    assert wc.status == WcStatus.SUCCESS
