"""A host whose card is on PCI Express: cocotbext-pcie's root complex, link and block."""

from __future__ import annotations

import logging
import os
import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, Timer
from cocotbext.axi import AddressSpace
from cocotbext.pcie.core import RootComplex

from hdl.abi import virtio_pci as abi
from hdl.abi.push import PUSH_BAR
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from hdl.csr.blocks import MANAGEMENT_DEVICE_ID, MANAGEMENT_VENDOR_ID
from hdl.host import config_space as space
from sim.guest.driver.memory import GuestMemory
from sim.guest.driver.shim import ShimMmio
from sim.measure.simspeed.axi import AxiTestbench
from sim.models.python_host import MESSAGES, PythonHost
from tests.pcie.block import Pcie4Block
from tests.pcie.model import Link
from tests.pcie.ptile_block import PTileBlock

__all__ = ["BLOCKS", "PcieBus", "PcieNicTestbench"]

#: Models of the blocks, by the names of the tests.
BLOCKS = {"pcie4": Pcie4Block, "ptile": PTileBlock}


class HostSpace(AddressSpace):
    """The host's addresses; ``message`` gets what is written where messages go."""

    def __init__(self, message):
        super().__init__(2**64)
        self._message = message

    def __bool__(self):
        return True  # its length, by which the root complex would judge, is no index

    async def write(self, address, data, **kwargs):
        if address in MESSAGES:
            self._message(address, int.from_bytes(data, "little"))
        else:
            await super().write(address, data, **kwargs)


class PcieBus:
    """Implements ``sim.guest.driver.shim.Bus`` by requests of the root complex."""

    def __init__(self, host: PcieNicHost):
        self._host = host

    async def config_read(self, function: int, addr: int, size: int) -> int:
        rc, block = self._host.rc, self._host.block
        return int.from_bytes(
            await rc.config_read(block.functions[function].pcie_id, addr, size), "little"
        )

    async def config_write(self, function: int, addr: int, size: int, value: int) -> None:
        rc, block = self._host.rc, self._host.block
        identity = block.functions[function].pcie_id
        await rc.config_write(identity, addr, value.to_bytes(size, "little"))

    async def bar_read(self, function: int, bar: int, addr: int, size: int) -> int:
        octets = await self._host.functions[function].bar_window[bar].read(addr, size)
        return int.from_bytes(octets, "little")

    async def bar_write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        window = self._host.functions[function].bar_window[bar]
        await window.write(addr, value.to_bytes(size, "little"))


class PushShim(ShimMmio):
    """With the writes of a push window, each of which is one packet."""

    def __init__(self, host: PcieNicHost):
        super().__init__(PcieBus(host))
        self._host = host

    async def write_combined(self, function: int, bar: int, addr: int, data: bytes) -> None:
        """See ``PushMmio``."""
        await self._host.functions[function].bar_window[bar].write(addr, data)


class PcieNicHost(PythonHost):
    """One host with its card; implements ``sim.guest.driver.platform.Platform``."""

    def __init__(self, dut: Any, config: NicConfig, *, block: Any, size: int, shuffle: int | None):
        super().__init__()
        self.config = config
        self.rc = RootComplex(mem_address_space=HostSpace(self.message))
        self.rc.max_payload_size = 3
        self.block = block(
            dut,
            functions=config.management_function + 1,
            whole=True,
            **self._msix(),
        )
        self._describe()
        self.link = Link(self.block, random.Random(cocotb.RANDOM_SEED), config.driven_functions)
        self.rc.make_port().connect(self.block)
        region = self.rc.mem_pool.alloc_region(size)
        base = region.get_absolute_address(0)
        self.memory = GuestMemory(np.frombuffer(region.mem, np.uint8), base=base, seed=shuffle)
        self.mmio = PushShim(self)
        self.functions: list[Any] = []

    def _msix(self) -> dict[str, Any]:
        """What the block must be generated with, for the MSI-X of the functions with a driver."""
        config = self.config
        vectors = dict.fromkeys(config.driven_functions, config.vectors)
        if config.network:
            vectors[FUNCTION_NET] = config.network_vectors
        return {
            f"pf{n}_msix_{name}": value
            for n in config.driven_functions
            for name, value in (
                ("enable", True),
                ("table_size", vectors[n] - 1),
                ("table_bir", space.BAR_REGISTERS),
                ("table_offset", space.MSIX_OFFSET),
                ("pba_bir", space.BAR_REGISTERS),
                ("pba_offset", space.PBA_OFFSET),
            )
        }

    def _describe(self) -> None:
        """Identities, BARs and the vendor capability, as the block must be generated with."""
        config = self.config
        for n, function in enumerate(self.block.functions):
            function.vendor_id, function.device_id = abi.VENDOR_ID, abi.DEVICE_ID_NET
            function.capabilities_list = True
            if n == FUNCTION_NET and config.network:
                function.configure_bar(space.BAR_REGISTERS, space.REGISTERS_BYTES)
                function.configure_bar(space.BAR_NOTIFY, space.notify_bytes(config.network_queues))
                self.block.extend(n, space.net_image(config))
            if n == self.config.management_function:
                function.device_id = MANAGEMENT_DEVICE_ID
                function.vendor_id = MANAGEMENT_VENDOR_ID
                function.configure_bar(0, space.MANAGEMENT_BYTES)
            elif n >= FUNCTION_RDMA:
                function.device_id = abi.DEVICE_ID_RDMA
                function.configure_bar(space.BAR_REGISTERS, space.REGISTERS_BYTES)
                function.configure_bar(space.BAR_NOTIFY, space.notify_bytes(self.config.queues))
                if self.config.push:
                    function.configure_bar(PUSH_BAR, space.push_bytes(self.config.guest))
                self.block.extend(n, space.rdma_image(self.config.guest))

    async def enumerate(self) -> None:
        """Find the functions, and let the management function's registers answer."""
        await self.rc.enumerate()
        self.functions = [self.rc.find_device(one.pcie_id) for one in self.block.functions]
        await self.functions[self.config.management_function].enable_device()

    async def sizes(self, code: int) -> None:
        """Set Max_Payload_Size and Max_Read_Request_Size; returns when the card knows them."""
        for function in self.block.functions:
            capability = function.pcie_cap
            capability.max_payload_size = capability.max_read_request_size = code
        await Timer(1, "us")


class PcieNicTestbench(AxiTestbench):
    """A card of ``hdl.pcie_nic`` with such a host; a wire from it to itself.

    The block is that of which the environment tells.
    """

    TX, RX = "m_axis_tx_", "s_axis_rx_"

    async def start(self) -> None:
        """Reset, enumerate, and join the wire. The block drives clock and reset."""
        # Enumeration asks for functions that are not there, which the models warn of.
        for name in ("cocotb.pcie", "cocotb.testbench"):
            logging.getLogger(name).setLevel(logging.ERROR)
        host = PcieNicHost(
            self.dut,
            self.config,
            block=BLOCKS[os.environ["BLOCK"]],
            size=self._memory,
            shuffle=self._shuffle,
        )
        self.hosts.append(host)
        self.dut.nic0_link_up.value = 1
        self._join([0])
        await RisingEdge(self.dut.clk)
        while self.dut.rst.value:
            await RisingEdge(self.dut.clk)
        await host.enumerate()
