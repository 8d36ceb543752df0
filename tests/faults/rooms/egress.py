"""Deliberate faults of hdl/egress."""

from tests.faults.fault import Fault
from tests.force import Force, inverted, plus, stuck

__all__ = ["FAULTS"]

EGRESS = ("tests/egress/test_egress.py::test_egress[64-256]",)
REPLAY = ("tests/replay/test_command.py::test_capture_with_every_operation",)

FAULTS = (
    Fault(
        name="bad-payload-sealed",
        what="a packet whose payload could not be read gets a good ICRC",
        force=Force("hdl.egress.seal:Seal", "beats.o.payload.error", stuck(0)),
        tests=EGRESS,
    ),
    Fault(
        name="header-shift-wrong",
        what="a frame's payload stands a word off behind its headers",
        force=Force("hdl.egress.merge:Merge", "shift", plus(1)),
        tests=EGRESS,
    ),
    Fault(
        name="answers-wait-for-bulk",
        what="every header is built at once, so an answer waits for all payload in front of it",
        force=Force("hdl.egress.lanes:HeaderLanes", "owed", stuck(0)),
        tests=("tests/egress/test_lanes.py::test_answers_pass_long_packets",),
    ),
    # What the whole card sends.
    Fault(
        name="pkey-wrong",
        what="the lowest bit of the P_Key is wrong in every packet",
        force=Force("hdl.egress.builder:HeaderBuilder", "i.payload.pkey", inverted(1)),
        tests=EGRESS + REPLAY,
        live=True,
    ),
    Fault(
        name="data-byte-wrong",
        what="a bit of the first payload byte in a beat is wrong, and the ICRC covers that",
        force=Force("hdl.egress.merge:Merge", "payload.payload.data", inverted(16)),
        tests=EGRESS + REPLAY,
        live=True,
    ),
    Fault(
        name="icrc-wrong",
        what="a bit of every ICRC is wrong",
        force=Force("hdl.egress.seal:Seal", "crcs.o.payload", inverted(1 << 9)),
        tests=EGRESS + REPLAY,
        live=True,
    ),
)
