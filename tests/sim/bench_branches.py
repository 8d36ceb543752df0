"""cocotb side of test_reached.py."""

from __future__ import annotations

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


@cocotb.test()
async def works(dut):
    dut.rst.value = dut.go.value = dut.kind.value = 0
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    await ClockCycles(dut.clk, 3)
    dut.go.value = 1
    dut.kind.value = 2
    await ClockCycles(dut.clk, 5)
    assert int(dut.o.value) > 16
