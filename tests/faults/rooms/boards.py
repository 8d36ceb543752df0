"""Deliberate faults of boards."""

from tests.faults.fault import Fault
from tests.force import Force, stuck

__all__ = ["FAULTS"]


FAULTS = (
    Fault(
        name="interrupt-without-an-edge",
        what="the ZCU106 forgets an interrupt that comes during the pulse of one before it",
        force=Force("boards.zcu106.top:PulseStretcher", "waits", stuck(0)),
        tests=("tests/boards/test_zcu106.py::test_each_pulse_is_followed_by_an_edge",),
    ),
    Fault(
        name="remote-fault-ignored",
        what="the U55C sends frames to an end that says that it cannot receive",
        force=Force("boards.u55c.top:U55cTop", "remote", stuck(0)),
        tests=("tests/boards/test_top.py",),
    ),
)
