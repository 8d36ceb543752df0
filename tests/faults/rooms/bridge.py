"""Deliberate faults of hdl/bridge."""

from tests.faults.fault import Fault
from tests.force import Force, stuck

__all__ = ["FAULTS"]


FAULTS = (
    # The bridge.
    Fault(
        name="bridge-check-ignored",
        what="the bridge executes a request whose check is wrong",
        force=Force("hdl.bridge.parser:RequestParser", "wrong", stuck(0)),
        tests=("tests/bridge/test_bridge.py::test_bridge",),
    ),
)
