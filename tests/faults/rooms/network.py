"""Deliberate faults of hdl/network."""

from tests.faults.fault import Fault
from tests.force import Force, inverted, plus, stuck

__all__ = ["FAULTS"]

FLOW = "tests/network/test_flow.py::"
CHECK = "tests/network/test_packet_check.py::"

FAULTS = (
    Fault(
        name="wrong-header-sum-right",
        what="an IPv4 packet whose header has a wrong checksum is told right",
        force=Force("hdl.network.packet_check:PacketCheck", "sum1", stuck(0xFFFF)),
        tests=(f"{CHECK}test_each_byte_spoilt[64]",),
    ),
    Fault(
        name="wrong-packet-sum-right",
        what="a packet whose TCP or UDP has a wrong checksum is told right",
        force=Force("hdl.network.packet_check:PacketCheck", "sum0", stuck(0xFFFF)),
        tests=(f"{CHECK}test_each_byte_spoilt[512]",),
    ),
    Fault(
        name="padding-counts",
        what="the first byte behind a packet counts in its checksum",
        force=Force("hdl.network.packet_check:PacketCheck", "extent.end", plus(1)),
        tests=(f"{CHECK}test_each_shape[64-0.0]",),
    ),
    Fault(
        name="fragment-told-right",
        what="what follows the first fragment is looked at as TCP or UDP",
        force=Force("hdl.network.packet_check:PacketCheck", "head.fragment", stuck(0)),
        tests=(f"{CHECK}test_each_field[512]",),
    ),
    Fault(
        name="hash-of-the-wrong-bit",
        what="the hash that chooses a queue is a bit off",
        force=Force("hdl.network.flow:FlowHash", "index", inverted(1)),
        tests=(f"{FLOW}test_published_hashes_in_hardware",),
    ),
    Fault(
        name="ports-of-a-fragment",
        what="what stands behind the header of a fragment is hashed as ports",
        force=Force("hdl.network.flow:FlowHash", "whole", stuck(1)),
        tests=(f"{FLOW}test_each_shape[512-0.0]",),
    ),
    Fault(
        name="udp-without-checksum-right",
        what="UDP without a checksum is told right",
        force=Force("hdl.network.packet_check:PacketCheck", "udp_checksum", stuck(1)),
        tests=(f"{CHECK}test_each_field[64]",),
    ),
)
