"""The guest driver against the RDMA function, with as many queues as a large card has."""

import cocotb
import numpy as np

from hdl.abi import virtio_pci as abi
from hdl.abi.limits import config_bytes
from hdl.abi.virtio_pci import DEVICE_ID_RDMA
from hdl.config import FUNCTION_RDMA
from sim.guest.driver.device import ALL_FEATURES, DriverOptions, VirtioPciDevice
from sim.guest.driver.memory import GuestMemory
from tests.host.card import LARGE
from tests.host.card_host import OFFERED, Doorbell, Host


@cocotb.test()
async def driver_brings_the_device_up(dut):
    host = await Host.begin(dut, LARGE)
    host.gap = 0
    host.memory = GuestMemory(np.zeros(1 << 21, np.uint8))
    device = VirtioPciDevice(host, FUNCTION_RDMA, DriverOptions())
    await device.open(DEVICE_ID_RDMA)
    assert device.features == OFFERED & ALL_FEATURES
    assert await device.config_bytes(128) == config_bytes(LARGE, bytes(6))[:128]
    assert await device.enable_vectors(8) == 8
    assert await device.common_read("num_queues") == LARGE.queues
    numbers = (0, 1, LARGE.cqs, LARGE.cqs + 1, 1024, LARGE.queues - 1)
    queues = {}
    for vector, number in enumerate(numbers):
        assert await device.queue_size(number) == LARGE.queue_size
        queues[number] = await device.setup_queue(number, size=64, vector=vector)
    await device.start()
    for number, queue in queues.items():
        row = await host.row(number)
        assert row == {
            "enabled": 1,
            "size_log2": 6,
            "desc": queue.desc,
            "driver": queue.avail,
            "device": queue.used,
            "vector": numbers.index(number),
            "fresh": 1,
        }
        await device.notify(queue)
    await host.tick(20)
    assert host.doorbells == [Doorbell(number, 1, 0, 1) for number in numbers]
    for vector in (3, 0, 7):
        await host.send("interrupt", FUNCTION_RDMA | vector << 8)
    await host.tick(20)
    assert device.interrupts == [1, 0, 0, 1, 0, 0, 0, 1]
    # Registers through the PCI_CFG window, with fields that end at odd offsets.
    window = device.windows[abi.CfgType.DEVICE]
    assert await device.window_read(window.bar, window.offset + 40, 4) == LARGE.qps
    await device.reset_queue(numbers[-1])
    assert (await host.row(numbers[-1]))["enabled"] == 0
    assert (await host.row(numbers[-2]))["enabled"] == 1
    started = host.cycles
    await device.close()
    dut._log.info(f"Device reset: {host.cycles - started} cycles for {LARGE.queues} queues")
    for number in numbers:
        assert (await host.row(number))["enabled"] == 0
