"""The network function behind cocotbext-pcie's block, link and root complex, beside RDMA."""

from __future__ import annotations

import random

import cocotb

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_net import RxCommand
from hdl.config import FUNCTION_NET
from hdl.ports.counter_names import AROUND
from sim.bench.system import System
from sim.guest.driver.pci import PciFunction, find_windows
from sim.guest.net import NetDevice, NetOptions
from tests.network import packets
from tests.nic.small_traffic import SmallTraffic
from tests.pcie.platform import PcieNicTestbench
from tests.pcie.test_pcie_nic import NETWORK

BROADCAST = b"\xff" * 6


async def up(dut, deadline: int) -> tuple[PcieNicTestbench, System, NetDevice]:
    testbench = PcieNicTestbench(dut, config=NETWORK, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=deadline, loopback=False)
    device = await NetDevice.start_up(testbench.hosts[0], NetOptions(unaligned=3))
    await device.set_mode(RxCommand.PROMISC, True)
    return testbench, system, device


async def frames(device: NetDevice, rng: random.Random, lengths: tuple[int, ...]) -> None:
    """Frames that the wire brings back, through queues of both pairs."""
    for number, length in enumerate(lengths):
        frame = packets.Shape(6, packets.TCP, payload=length).build(rng)
        right = device.right
        await device.send(frame, pair=number % 2, pieces=(12, 20))
        found: list[bytes] = []

        def come(found: list[bytes] = found) -> bool:
            for pair in range(device.pairs):
                device._reap_received(pair)
                found.extend(device.frames[pair])
                device.frames[pair].clear()
            return bool(found)

        await device.wait_until(come, "the frame")
        assert found == [frame] and device.right == right + 1
        for pair in range(device.pairs):
            await device.queue(pair, transmit=False).kick()


@cocotb.test()
async def frames_beside_rdma(dut):
    """Both drivers on one card; frames of all sizes while RDMA works, and no fault on the bus."""
    testbench, system, device = await up(dut, 400_000)
    node, host, rng = system.nodes[0], testbench.hosts[0], random.Random(1)
    windows = await find_windows(PciFunction(host.mmio, FUNCTION_NET))
    assert {*windows} == {*abi.CfgType}
    traffic = await SmallTraffic.start(node, testbench)
    task = cocotb.start_soon(traffic.run())
    await frames(device, rng, (0, 1, 40, 64, 300, 1000, 1400, 8900))
    await task
    assert any(device.interrupts[1:]) and not host.interrupts.spurious
    counters = await node.counters()
    assert not [name for name in AROUND if counters[name]]
    counted = await node.registers.network.counters()
    assert counted["net_rx_frames"] >= 8 and not counted["net_tx_errors"], counted


@cocotb.test()
async def function_level_reset_of_each(dut):
    """The network function is reset in the middle of frames while RDMA works, and comes up again;
    then the other way round."""
    testbench, system, device = await up(dut, 900_000)
    node, host, rng = system.nodes[0], testbench.hosts[0], random.Random(2)
    for cycles in (50, 700):
        traffic = await SmallTraffic.start(node, testbench)
        task = cocotb.start_soon(traffic.run())
        for _ in range(6):
            await device.send(BROADCAST + rng.randbytes(900))
        await testbench.cycles(cycles)
        assert await host.block.reset_function(FUNCTION_NET) > 10
        await task
        await device.close()
        device = await NetDevice.start_up(host)
        assert (await node.registers.network.filter()).modes == frozenset()
        await device.set_mode(RxCommand.PROMISC, True)
        await frames(device, rng, (10, 700))
        await node.context.close()
        await node.start()
    await host.block.reset_function(1)
    await frames(device, rng, (20, 800))
    assert (await node.counters())["bus_resets"] == 3
