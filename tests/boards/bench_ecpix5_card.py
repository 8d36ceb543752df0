"""SENDs between two QPs of the card, whose frames a PHY sends back: the host is behind the UART."""

from types import SimpleNamespace

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.triggers import ClockCycles, Timer

from boards.ecpix5.card import CONFIG, MEMORY_BYTES
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi.enums import Access, Mtu, WcStatus, WrOpcode
from sim.bench.system import QpOptions, connect
from sim.guest.bridge.link import Link
from sim.guest.bridge.platform import FEATURES, BridgePlatform
from sim.guest.driver.device import DriverOptions
from sim.guest.driver.management import Management
from sim.guest.verbs import CQ, MR, Context, QPCap, RecvWR, SendWR
from sim.models.gmii import GmiiPhy
from sim.models.uart import UartLine
from sim.wire.packets import dissect
from tests.boards.test_ecpix5_card import DIVISOR

CORE_PS, MAC_PS = 20_000, 8_000
SIZES = (1, 64, 2500)
MAC = bytes((2, 0, 0, 0, 0, 1))
PATIENCE_NS = 1_000_000_000


def signals(dut, way):
    return tuple(getattr(dut, f"{way}__{name}") for name in ("data", "en", "er"))


async def start(dut, frames: list[bytes]) -> BridgePlatform:
    """Clocks, resets, the PHY and the line; returns the host behind it."""
    for name, period in (("clk", CORE_PS), ("mac_tx_clk", MAC_PS), ("mac_rx_clk", MAC_PS)):
        cocotb.start_soon(Clock(getattr(dut, name), period, unit="ps").start())
    resets = [getattr(dut, name) for name in ("rst", "mac_tx_rst", "mac_rx_rst")]
    for reset in resets:
        reset.value = 1

    def arrived(frame: bytes) -> None:
        frames.append(frame)
        phy.inject(frame)

    phy = GmiiPhy(
        signals(dut, "to_phy"),
        signals(dut, "from_phy"),
        (dut.mac_tx_clk, dut.mac_rx_clk),
        arrived,
    )
    line = UartLine(dut.rx, dut.tx, bit_ps=DIVISOR * CORE_PS)
    await ClockCycles(dut.clk, 16)
    for reset in resets:
        reset.value = 0
    await ClockCycles(dut.clk, 20 * DIVISOR)
    host = BridgePlatform(Link(line), MEMORY_BYTES, lambda: int(get_sim_time("ns")))
    dut._log.info("the host is there")
    return host


@cocotb.test(timeout_time=3000, timeout_unit="ms")
async def sends(dut):
    frames: list[bytes] = []
    host = await start(dut, frames)
    registers = Registers(Management(host.registers, CONFIG.management_function), CONFIG)
    await registers.check()
    await registers.set_port(MAC, lossless=False)
    firmware = Firmware(registers, CONFIG)

    async def idle() -> None:
        await Timer(50, "us")

    cocotb.start_soon(firmware.run(idle))
    dut._log.info("the firmware runs")
    options = DriverOptions(FEATURES, vectors=2, timeout_ns=PATIENCE_NS)
    context = await Context.open(host, firmware.functions[0].number, options=options)
    await context.add_gid(0, "10.0.0.1")
    dut._log.info("the driver is up")
    node = SimpleNamespace(context=context, mac=MAC)
    pd = await context.alloc_pd()
    cqs = [await CQ.create(context, 8) for _ in range(2)]
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1, max_inline_data=0)
    qps = await connect(
        (node, node), (pd, pd), cqs, QpOptions(cap=cap, mtu=Mtu.MTU_1024, max_rd_atomic=1)
    )
    dut._log.info("the QPs are connected")
    total = sum(SIZES)
    mrs = [await MR.create(pd, total, Access.LOCAL_WRITE) for _ in range(2)]
    data = np.random.default_rng(1).integers(0, 256, total, np.uint8)
    mrs[0].write(data)
    places = [(n, sum(SIZES[:n]), size) for n, size in enumerate(SIZES)]
    await qps[1].post_recv([RecvWR(n, [mrs[1].sge(at, size)]) for n, at, size in places])
    await qps[0].post_send(
        [SendWR(n, WrOpcode.SEND, [mrs[0].sge(at, size)]) for n, at, size in places]
    )
    for cq in cqs:
        done = []
        while len(done) < len(SIZES):
            done += await cq.wait(1, timeout_ns=PATIENCE_NS)
        assert [wc.status for wc in done] == [WcStatus.SUCCESS] * len(SIZES)
    assert (mrs[1].read(total) == data).all()
    assert host.interrupts.received > 0
    packets = [dissect(frame) for frame in frames]
    assert all(packet.icrc_good for packet in packets)
    assert len(packets) >= len(SIZES) + 2 + 1  # of 2500 bytes there are three, and an ACK
    counters = await registers.counters()
    assert counters["rx_packets"] == len(frames)
