"""Frames through RGMII's pins and bytes through the UART of a top whose card sends both back."""

import random

import cocotb
from cocotb.triggers import ClockCycles, Timer

from sim.board.pins import Board

LENGTHS = (60, 61, 64, 127, 1100)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def sends_back(dut):
    rng = random.Random(1)
    frames = [rng.randbytes(length) for length in LENGTHS]
    back: list[bytes] = []
    came = bytearray()
    board = Board(dut, back.append)
    await board.start()
    assert int(dut.phy_rst_n.value) == 0 and int(dut.led_phy_n.value) == 1
    uart = board.uart(came.append)
    for frame in frames:
        board.phy.inject(frame)
    text = rng.randbytes(20)
    await uart.send(text)
    while len(back) < len(frames):
        await Timer(1, "us")
    assert back == frames and bytes(came) == text
    dut.button_n.value = 0
    await ClockCycles(dut.rgmii_rx_clk, 20)
    assert int(dut.led_running_n.value) == 1
    board.phy.inject(frames[0])  # nobody is there
    await Timer(5, "us")
    dut.button_n.value = 1
    await ClockCycles(dut.rgmii_rx_clk, 2000)
    assert int(dut.led_running_n.value) == 0
    board.phy.inject(frames[1])
    while len(back) < len(frames) + 1:
        await Timer(1, "us")
    assert back[-1] == frames[1]
