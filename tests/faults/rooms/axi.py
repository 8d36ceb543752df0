"""Deliberate faults of hdl/axi."""

from tests.faults.fault import Fault
from tests.force import Force, like, of, stuck

__all__ = ["FAULTS"]

AXI = ("tests/axi/test_axi.py::test_adapter[64]",)
ORDER = ("tests/axi/test_order.py",)

FAULTS = (
    # The AXI adapter.
    Fault(
        name="axi-read-overtakes-write",
        what="a read is asked for while a write before it has no response",
        force=Force("hdl.axi.order:Fence", "limit", like("come")),
        tests=ORDER + AXI,
    ),
    Fault(
        name="axi-error-forgotten",
        what="an error response that is not on the last beat is lost",
        force=Force("hdl.axi.reads:AxiReads", "before", stuck(0)),
        tests=AXI,
    ),
    Fault(
        name="axi-length-without-lane",
        what="a burst's length does not count the bytes in front of its first one",
        force=Force(
            "hdl.axi.writes:AxiWrites",
            "last_byte",
            of(lambda true, get: get("held.final")),
        ),
        tests=AXI,
    ),
    Fault(
        name="axi-writes-unlimited",
        what="more write bursts are issued than may be without response",
        force=Force("hdl.axi.writes:AxiWrites", "space", stuck(1)),
        tests=ORDER,
    ),
)
