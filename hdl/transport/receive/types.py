"""Rows that the parts of the receive side hand to each other, and their events."""

from amaranth.hdl import Value
from amaranth.lib import data, enum

from hdl.common.count import COUNT
from hdl.ports.counter_names import COUNTERS as ALL_COUNTERS
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import Effects
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import PacketOperation
from hdl.ports.rows import QpAck, QpCfg, QpReply, QpRx, QpSent, ReadSink
from hdl.wire.opcodes import Kind

__all__ = [
    "COUNTERS",
    "CompleterWork",
    "Counted",
    "Counters",
    "Events",
    "ResponderWork",
    "Syndrome",
    "Part",
    "Pending",
    "is_plain_ack",
    "pieces_bit",
]


class Syndrome(enum.IntEnum, shape=8):
    """AETH syndromes (IBTA vol 1, 9.7.5.2.1); an RNR NAK carries the timer in its low 5 bits."""

    ACK = 0x1F
    RNR_NAK = 0x20
    PSN_SEQUENCE = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS = 0x62
    REMOTE_OPERATIONAL = 0x63


class ResponderWork(data.Struct):
    """One request packet with the rows of its QP, or (``flush``) one receive WQE to flush."""

    flush: 1
    qp: QpNumber
    header: RxHeader
    operation: PacketOperation
    cfg: QpCfg
    rx: QpRx
    reply: QpReply
    # XRC: the receive queue that it names, or whose request it holds; ``cfg`` has protection
    # domain, CQ and source of that one then, but if it is not there or not the QP's.
    srq: 24
    lost: 1


class CompleterWork(data.Struct):
    """One response packet with the rows of its QP, or (``finish``) a look at the oldest WQE."""

    finish: 1
    timeout: 1  # ... because the QP's timer has run out
    qp: QpNumber
    in_error: 1  # by firmware, or either side of the QP has stopped
    header: RxHeader
    operation: PacketOperation
    cfg: QpCfg
    ack: QpAck
    sent: QpSent


class Part(enum.Enum, shape=2):
    """Who handles a packet or poke."""

    FRONT = 0  # Receive itself: drops it
    RESPONDER = 1
    COMPLETER = 2


#: What the receive side counts: all until the last of the completer, and Q_Keys behind P_Keys.
#: ``hdl/ports/counter_names.py`` says of what.
COUNTERS = list(ALL_COUNTERS[: ALL_COUNTERS.index("req_cqe_flush_error") + 1])
COUNTERS.insert(COUNTERS.index("bad_pkey") + 1, "bad_qkey")

#: Since reset, wrapping.
Counters = data.StructLayout({name: COUNT for name in COUNTERS})
#: One bit each, for one cycle when it happens.
Events = data.StructLayout({name: 1 for name in COUNTERS})


class Counted(data.Struct):
    """Events of one QP."""

    qp: QpNumber
    events: Events


class Pending(data.Struct):
    """What a scatter job brings about once its check has come; in the order of the jobs.

    Worked out as if the check were good. ``jobless``: there is no job: only row and events.
    """

    qp: QpNumber
    part: Part
    packet: 1  # the first of a packet (further ones and pokes: 0)
    jobless: 1
    line: 1  # the job reads a line of RecvFetch
    reads: 1  # completer: a READ ends, whose ``sink`` nobody reads behind this job
    sink: ReadSink  # of the responder's: ``pieces_bit``
    silent: 1  # its QP's requests are never answered, so a bad one is dropped
    send: 1  # responder: of a SEND, whose WQE ends with a check that is not good
    taken: 1  # responder: it takes a receive WQE, which does not go back
    commit: 1  # ``row`` is to be the QP's
    invalidate: 1  # a key in ``pd``: the one in ``effects.completion.imm``
    pd: 16
    row: QpRx
    effects: Effects
    events: Events


def pieces_bit(record: data.View) -> Value:
    """Of a ``Pending`` of the responder, on a card with MP WR: it is put into a request that takes
    several packets, of which other QPs may have more by now. So ``taken`` says that the request
    ends with it, and it does, whatever becomes of the record. Only the completer's have a sink."""
    return record.sink.long


def is_plain_ack(header: data.View, operation: data.View) -> Value:
    """Whether an ``RxHeader`` is a positive acknowledgement and nothing else."""
    positive = (operation.kind == Kind.ACKNOWLEDGE) & (header.syndrome[5:] == 0)
    return operation.served & positive & (header.length == 0)
