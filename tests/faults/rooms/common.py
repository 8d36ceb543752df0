"""Deliberate faults of hdl/common."""

from tests.faults.fault import Fault
from tests.force import Force, rotated, stuck

__all__ = ["FAULTS"]

PACK = ("tests/common/test_pack.py",)
CROSSING = ("tests/common/test_crossing.py",)
AXI = ("tests/axi/test_axi.py::test_adapter[64]",)
BARRIER = ("tests/common/test_barrier.py",)
PCIE = ("tests/pcie/test_pcie.py::test_adapter[pcie4]",)

FAULTS = (
    # From one clock to another.
    Fault(
        name="full-crossing-written",
        what="the FIFO between two clocks is written when it is full",
        force=Force("hdl.common.crossing:AsyncStreamFifo", "i.ready", stuck(1)),
        tests=CROSSING,
    ),
    Fault(
        name="reset-ends-alone",
        what="a clock domain runs again while the others' clocks may not have run at all",
        force=Force("hdl.common.crossing:ResetSequencer", "waits", stuck(0)),
        tests=CROSSING,
    ),
    Fault(
        name="crossing-not-constrained",
        what="a path between two clocks gets no timing constraint",
        file="hdl/common/crossing.py",
        old='"fifo.consume_r_gry", "fifo.consume_cdc.stage0"',
        new='"fifo.consume_r_bin", "fifo.consume_cdc.stage0"',
        because="the constraint is no logic",
        tests=CROSSING,
    ),
    Fault(
        name="answer-overtakes-write",
        what="a register read is answered while a write before it is not done, on AXI and PCIe",
        force=Force("hdl.common.barrier:Barrier", "passed", stuck(1)),
        tests=BARRIER + AXI + PCIE,
    ),
    Fault(
        name="rotator-shift-wrong",
        what="one level of the shared rotator moves by a byte too many",
        force=Force("hdl.common.shift:Rotator", "turned", rotated(8)),
        tests=PACK,
    ),
    Fault(
        name="drain-before-fronts",
        what="a drain begins while packets and WQEs are at hand that go by the old row",
        force=Force("hdl.common.quiesce:Quiesce", "left", stuck(0)),
        tests=("tests/common/test_quiesce.py",),
    ),
)
