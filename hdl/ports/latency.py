"""Between the measurement of latencies, the rooms that it watches, and the registers."""

from amaranth.hdl import Cat, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature

from hdl.common.tables import TableRead

from .counter_names import LATENCY_BUCKETS
from .numbers import QpNumber

__all__ = [
    "BUCKET_INDEX",
    "SUM_BITS",
    "HistogramPort",
    "LatencyPort",
    "PACKET_KEY",
    "ReceiveSteps",
    "SendSteps",
    "packet_key",
]

#: Bits of the number of a histogram's count.
BUCKET_INDEX = (LATENCY_BUCKETS - 1).bit_length()
#: Bits of the sum of all measured cycles.
SUM_BITS = 48
#: Bits of what tells a packet from others: opcode, destination QP, PSN.
PACKET_KEY = 56


def packet_key(header) -> Value:
    """What tells a packet from others on the way, for ``SendSteps``; ``header``: ``TxHeader``."""
    return Cat(header.opcode, header.dest_qp, header.psn)


class SendSteps(data.Struct):
    """What happens on the way of a message to the wire, in a cycle."""

    doorbell: 1  # a send queue has got a doorbell
    doorbell_qp: QpNumber
    job: 1  # a packet of a request goes to the gather
    job_qp: QpNumber
    job_key: PACKET_KEY
    header: 1  # a packet's header begins to be built
    header_key: PACKET_KEY
    frame: 1  # a frame's first beat goes to the MAC's side


class ReceiveSteps(data.Struct):
    """What happens in a cycle to packets with payload, which is not that of a GRH."""

    kept: 1  # one has come and is good
    passed: 1  # the last beat of one leaves the receive buffer, once for each member of a group
    freed: 1  # one leaves it for good


class HistogramPort(Signature):
    """A histogram, seen from the registers: see ``LATENCY_BUCKETS``."""

    def __init__(self):
        super().__init__({"counts": Out(TableRead(BUCKET_INDEX, 32)), "sum": In(SUM_BITS)})


class LatencyPort(Signature):
    """Both histograms, seen from the registers."""

    def __init__(self):
        super().__init__({"send": Out(HistogramPort()), "receive": Out(HistogramPort())})
