"""Deliberate faults of hdl/ingress."""

from tests.faults.fault import Fault
from tests.force import Force, masked, of, plus, stuck

__all__ = ["FAULTS"]

INGRESS = ("tests/ingress/test_ingress.py::test_ingress[64]",)
REPLICATOR = ("tests/ingress/test_replicator.py",)
MATCH = ("tests/ingress/test_match.py",)
BUFFER = ("tests/ingress/test_buffer.py",)

FAULTS = (
    # What comes off the wire.
    Fault(
        name="icrc-unchecked",
        what="packets with a wrong ICRC are delivered",
        force=Force("hdl.ingress.checks:IcrcCheck", "ok", stuck(1)),
        tests=INGRESS,
    ),
    Fault(
        name="ipv4-checksum-unchecked",
        what="packets with a wrong IPv4 header checksum are delivered",
        force=Force("hdl.ingress.parser:HeaderParser", "checks.ipv4_checksum", stuck(0)),
        tests=INGRESS,
    ),
    Fault(
        name="trace-is-not-told",
        what="the trace does not learn that the card has dropped a frame that the MAC has marked",
        force=Force("hdl.ingress.ingress:Ingress", "verdict.reasons", masked(~1)),
        tests=INGRESS,
    ),
    # Multicast groups.
    Fault(
        name="group-mac-unchecked",
        what="a frame to a group may have any multicast MAC address",
        force=Force("hdl.ingress.groups:MacOfGroup", "mapped", stuck(1)),
        tests=MATCH,
    ),
    Fault(
        name="group-takes-any-packet",
        what="a packet to a group need not be a datagram to QP FFFFFFh",
        force=Force("hdl.ingress.parser:HeaderParser", "fits", stuck(1)),
        tests=("tests/ingress/test_parser.py",),
    ),
    Fault(
        name="copy-for-another",
        what="a copy of a multicast datagram has another QP number than its member's",
        force=Force("hdl.ingress.replicator:Replicator", "member", plus(1)),
        tests=REPLICATOR,
    ),
    Fault(
        name="copies-of-one-function",
        what="of the functions with a group only the first one's members get copies",
        force=Force(
            "hdl.ingress.replicator:Replicator",
            "served",
            of(lambda true, see: true.any().replicate(2)),
        ),
        tests=REPLICATOR,
    ),
    Fault(
        name="payload-read-once",
        what="the second copy of a multicast datagram has the payload of the packet behind it",
        file="hdl/ingress/buffer.py",
        old="            with m.Elif(last):\n                m.d.sync += at.eq(start)\n",
        new="",
        because="it is one of several assignments of a register",
        tests=BUFFER,
    ),
    Fault(
        name="number-as-on-the-wire",
        what="what an atomic has found lies big-endian in the requester's memory",
        force=Force("hdl.ingress.realign:Realign", "plan.number", stuck(0)),
        tests=INGRESS,
    ),
    Fault(
        name="grh-left-out",
        what="the GRH area of a datagram is all zeros",
        force=Force("hdl.ingress.grh:GrhJoin", "plans.i.payload.area", stuck(0)),
        tests=("tests/ingress/test_grh.py",),
    ),
    # P_Keys of QP1.
    Fault(
        name="one-partition-for-qp1",
        what="QP1 takes packets of the P_Key table's first entry alone",
        force=Force("hdl.ingress.partition:PartitionMatch", "same", masked(1)),
        tests=INGRESS,
    ),
)
