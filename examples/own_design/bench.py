"""A bench of one's own around the core, with cocotbext-axi, and Rocinante's driver and firmware.

Run it with ``.venv/bin/python examples/own_design/bench.py``. It writes the core, compiles it with
the design around it, and lets the card write to itself over the looped cable.
"""

from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi.enums import Access, WcStatus, WrOpcode
from sim.bench.axi_host import AxiNicHost
from sim.guest.driver.management import Management
from sim.guest.verbs import CQ, MR, QP, AHAttr, Context, GlobalRoute, QPAttr, QPInitAttr, SendWR
from sim.make.core.command import write_core
from sim.make.core.settings import read_settings
from sim.rtl.build import build_model, run

HERE = Path(__file__).resolve().parent
SETTINGS = read_settings(HERE / "core.toml")
MAC, ADDRESS = bytes.fromhex("020000000001"), "10.0.0.1"
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE


async def bring_up(dut):
    """Clock, reset, firmware, driver; returns the driver's context."""
    config = SETTINGS.config
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    dut.rst.value = 1
    host = AxiNicHost(dut, size=16 << 20)
    await ClockCycles(dut.clk, 8)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 8)

    registers = Registers(Management(host.mmio, config.management_function), config)
    await registers.check()
    await registers.set_port(MAC, lossless=True, loopback=False)
    firmware = Firmware(registers, config)
    cocotb.start_soon(firmware.run(lambda: ClockCycles(dut.clk, 500)))
    context = await Context.open(host, firmware.functions[0].number)
    await context.add_gid(0, ADDRESS)
    return context


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def writes_to_itself(dut):
    """One WRITE between two queue pairs of the card."""
    context = await bring_up(dut)
    pd, cq = await context.alloc_pd(), await CQ.create(context, 16)
    ends = [await QP.create(pd, QPInitAttr(scq=cq, rcq=cq)) for _ in range(2)]
    for qp, peer in (ends, ends[::-1]):
        route = AHAttr(GlobalRoute(ADDRESS), roce_dmac=MAC)
        await qp.to_rts(QPAttr(dest_qp_num=peer.qp_num, ah_attr=route, qp_access_flags=RIGHTS))
    source, target = [await MR.create(pd, 8192, RIGHTS) for _ in range(2)]
    data = bytes(range(256)) * 20
    source.write(data)
    request = SendWR(1, WrOpcode.RDMA_WRITE, [source.sge(0, len(data))])
    request.set_wr_rdma(target.rkey, target.iova)
    await ends[0].post_send(request)
    (completion,) = await cq.wait()
    assert completion.status is WcStatus.SUCCESS
    await ClockCycles(dut.clk, 500)  # until the last bytes are in memory
    assert bytes(target.read(len(data))) == data


if __name__ == "__main__":
    core = write_core(SETTINGS, Path("core"), "rocinante")[0]
    model = build_model([], top="design_top", extra_sources=[core, HERE / "design.sv"], fast=False)
    results = run(model, test_module="bench")
    print("passed:", ", ".join(case.name for case in results.cases), "- log in", results.folder)
