"""A host whose card is on AXI: cocotbext-axi's RAM and register master; interrupts are wires.

For a bench around ``hdl.axi_nic``, or around the core that ``rocinante verilog`` writes
(examples/own_design). cocotbext-axi is a package of its own.
"""

from __future__ import annotations

import logging
import mmap
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, ValueChange
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from hdl.axi.registers import BAR_BITS, OFFSET_BITS
from sim.guest.driver.memory import GuestMemory
from sim.models.platform import MSI_WINDOW
from sim.models.python_host import PythonHost

__all__ = ["AXI_NIC", "AxiMmio", "AxiNicHost"]

#: Interrupts of the card: the first words of the page that the driver's messages go to.
AXI_NIC = {"interrupts": 64, "interrupt_window": MSI_WINDOW}
#: What the driver's first message holds; each further one holds one more.
FIRST_MESSAGE = 0x4000


class AxiMmio:
    """Register accesses; implements ``sim.guest.driver.platform.Mmio``."""

    def __init__(self, master: Any):
        self._master = master
        self._last: Any = None

    @staticmethod
    def _address(function: int, bar: int, addr: int) -> int:
        return (function << BAR_BITS | bar) << OFFSET_BITS | addr

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read ``size`` (1, 2, 4) bytes, behind the writes before."""
        if self._last is not None:
            await self._last.wait()
        answer = await self._master.read(self._address(function, bar, addr), size)
        return int.from_bytes(answer.data, "little")

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Posted write."""
        octets = value.to_bytes(size, "little")
        self._last = self._master.init_write(self._address(function, bar, addr), octets)


class AxiNicHost(PythonHost):
    """One host with its card; implements ``sim.guest.driver.platform.Platform``.

    dut: has ``clk`` and ``rst``, and the signals that ``bus``, ``registers`` and ``irq`` name.
    size: bytes of memory. shuffle: seed of the order of its pages; None: ascending.
    """

    def __init__(
        self,
        dut: Any,
        *,
        size: int,
        shuffle: int | None = None,
        bus: str = "m_axi",
        registers: str = "s_axil",
        irq: str = "irq",
    ):
        super().__init__()
        self._irq, self._clk = getattr(dut, irq), dut.clk
        octets = mmap.mmap(-1, size)
        ram = AxiRam(AxiBus.from_prefix(dut, bus), dut.clk, dut.rst, size=size, mem=octets)
        lite = AxiLiteBus.from_prefix(dut, registers)
        master = AxiLiteMaster(lite, dut.clk, dut.rst)
        for part in (ram.write_if, ram.read_if, master.write_if, master.read_if):
            part.log.setLevel(logging.WARNING)
        self.memory = GuestMemory(np.frombuffer(octets, np.uint8), seed=shuffle)
        self.mmio = AxiMmio(master)
        cocotb.start_soon(self._wires())

    async def _wires(self) -> None:
        while True:
            await ValueChange(self._irq)
            while value := int(self._irq.value):
                for n in range(value.bit_length()):
                    if value >> n & 1:
                        self.message(MSI_WINDOW + 4 * n, FIRST_MESSAGE + n)
                await RisingEdge(self._clk)
