"""Inside the simulation of ``test_stall``: a card that hangs, and one that is done."""

import cocotb

from hdl.config import NicConfig
from sim.bench.stall import stall_report
from sim.bench.testbench import Testbench
from sim.rtl.readable import load

CONFIG = NicConfig(width=64)


async def begin(dut) -> Testbench:
    for i in range(2):
        for port in ("i__valid", "i__payload", "o__ready", "grant"):
            getattr(dut, f"nic{i}_{port}").value = 0
    testbench = Testbench(dut, config=CONFIG)
    await testbench.start()
    return testbench


@cocotb.test()
async def names_what_hangs(dut):
    testbench = await begin(dut)
    assert [line.strip() for line in stall_report(testbench).splitlines()] == [
        "Card 0",
        "everything is at rest",
        "Card 1",
        "everything is at rest",
    ]
    dut.nic1_grant.value = 1  # the front may send, the back must not
    dut.nic1_i__valid.value = 1
    await testbench.cycles(5)
    dut.nic1_i__valid.value = 0
    await testbench.cycles(60)
    assert [line.strip() for line in stall_report(testbench).splitlines()] == [
        "Card 0",
        "everything is at rest",
        "Card 1",
        "back: serve in AWAIT_GRANT",
        "back.queue: level 5",
    ]
    dut.nic1_i__valid.value = 1
    await testbench.cycles(60)
    report = stall_report(testbench)
    for text in (
        "  back.queue: level 8, i waits\n",
        "  front: serve in SEND, ",
        "o waits",
        "i waits",
        "  front.queue: level 8, i waits",
    ):
        assert text in report, (text, report)
    dut.nic1_i__valid.value = 0
    dut.nic1_grant.value = 3
    dut.nic1_o__ready.value = 1
    await testbench.cycles(100)
    assert stall_report(testbench).count("everything is at rest") == 2


@cocotb.test()
async def inside_of_a_deadline(dut):
    """What the failure of a test says: this one fails, and is meant to."""
    testbench = await begin(dut)
    testbench.deadline(100, lambda: stall_report(testbench))
    dut.nic0_i__valid.value = 1
    await testbench.cycles(1000)


@cocotb.test()
async def only_probes_can_be_read(dut):
    await begin(dut)
    assert len(load()) == 10
    assert dut.nic0.front.queue._get("stored") is None
