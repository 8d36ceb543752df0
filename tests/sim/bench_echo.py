"""cocotb side of test_build.py."""

from __future__ import annotations

import ctypes
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer


async def start(dut) -> None:
    dut.i__valid.value = 0
    dut.o__ready.value = 1
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0


@cocotb.test()
async def passes_words(dut):
    await start(dut)
    width = len(dut.i__payload)
    words = [random.getrandbits(width) for _ in range(20)]
    received = []
    for word in [*words, 0]:
        dut.i__payload.value = word
        dut.i__valid.value = int(len(received) < len(words))
        await RisingEdge(dut.clk)
        if dut.o__valid.value:
            received.append(int(dut.o__payload.value))
    await RisingEdge(dut.clk)
    received.append(int(dut.o__payload.value))
    assert received[: len(words)] == words
    cocotb.log.info("words %s", words[:3])


@cocotb.test(skip="wrong" not in os.environ.get("ECHO", ""))
async def fails(dut):
    await start(dut)
    await RisingEdge(dut.clk)
    assert int(dut.count.value) == 77, "count is not what was asked"


@cocotb.test(skip="hang" not in os.environ.get("ECHO", ""))
async def hangs(dut):
    while True:
        await Timer(1, "ns")


@cocotb.test(skip="sees" not in os.environ.get("ECHO", ""))
async def sees_inner_signal(dut):
    assert str(hasattr(dut, "inner")) in os.environ["ECHO"]
    assert hasattr(dut, "o")


@cocotb.test(skip="dpi" not in os.environ.get("ECHO", ""))
async def shares_memory(dut):
    """The C++ side counts clock edges in memory that Python reads."""
    cell = ctypes.c_uint64.in_dll(ctypes.CDLL(None), "tick_count")
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    await ClockCycles(dut.clk, 100)
    assert 99 <= cell.value <= 101
    cell.value = 1000
    await ClockCycles(dut.clk, 10)
    assert int(dut.ticks.value) > 1000
