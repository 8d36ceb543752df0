"""Jobs and results that rooms hand to each other; docs/architecture.md: who sends what to whom."""

from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import Out

from hdl.common.activation import Activation

from .headers import PACKET_GENERATION, TxHeader
from .numbers import CqNumber, QpNumber
from .operations import RequestOperation
from .rows import GENERATION, Outstanding, ReadSink, ReceiveSource

__all__ = [
    "PACKET_GENERATION",
    "WQE_LINE_BITS",
    "Sge",
    "FetchRequest",
    "RecvRequest",
    "FetchStatus",
    "SendWqe",
    "Destination",
    "RecvWqe",
    "SendFetched",
    "RecvFetched",
    "LineStore",
    "ReadSink",
    "SHORT_SINK_SGES",
    "SinkWrite",
    "Upcoming",
    "WqeRead",
    "LINE_USES",
    "LineUse",
    "TxSource",
    "TxJob",
    "TxChecked",
    "Copied",
    "ScatterKind",
    "ScatterJob",
    "ScatterChecked",
    "Effects",
    "Completion",
    "ReplyFlags",
    "Activation",
    "Oldest",
    "Rewind",
    "DropList",
    "DropQueue",
    "ClearCounters",
    "Doorbell",
    "QueueError",
    "QueueErrorCause",
    "Interrupt",
]


#: Width of the number of a line of RecvFetch, or of a sink; those of SendFetch are shorter.
WQE_LINE_BITS = 13
#: SGEs for which a short sink has room; a READ with more needs a long one.
SHORT_SINK_SGES = 4
#: Lines of RecvFetch that may be read at a time, as ``LineUse`` tells.
LINE_USES = 16


class Sge(data.Struct):
    """Scatter/gather element as it lies in a WQE (VR-4: sge, 16 bytes little-endian)."""

    addr: 64
    length: 32
    lkey: 32


class FetchRequest(data.Struct):
    """Fetch the element at avail-ring ``position`` of virtqueue ``queue``.

    ``known`` is the avail index the asker knows of (from a doorbell or an earlier answer): when
    ``position`` lies before it the avail index is not read again. Equal to ``position``: only the
    index is asked for.
    """

    function: 8
    qp: QpNumber
    queue: 16
    position: 16
    known: 16


class RecvRequest(data.Struct):
    """A receive WQE is asked for: the source's next one, with which the source moves on, or
    ``again`` the one whose descriptors begin with ``head``, for the next packet of the message that
    holds it. (Its place in the ring does not tell: the driver may have used that again.)"""

    function: 8
    qp: QpNumber
    source: ReceiveSource
    again: 1
    head: 16
    last: 1  # it is not asked for any more


class FetchStatus(enum.Enum, shape=2):
    """What became of a fetch."""

    OK = 0
    EMPTY = 1  # the driver has made nothing available at that position
    WQE_ERROR = 2  # the element is there but is no valid WQE: completes with ``error``
    QUEUE_ERROR = 3  # the ring itself is broken: the queue has been stopped


class SendWqe(data.Struct):
    """A decoded send WQE (VR-4, cmd_post_send); its SGEs or inline bytes are in its line, and the
    operands of an atomic too. What ``remote_addr`` and ``rkey`` are for work requests that have
    others in their place: ``operands`` (``hdl.ports.shared``)."""

    operation: RequestOperation
    fence: 1
    signaled: 1
    solicited: 1
    inline: 1
    num_sge: 6
    wr_id: 64
    imm: 32  # immediate, or the key to invalidate: ``ex``
    remote_addr: 64
    rkey: 32
    length: 32  # message bytes: sum of the SGEs, or the inline bytes


class RecvWqe(data.Struct):
    """A decoded receive WQE (VR-4, cmd_post_recv); its SGEs are in its line."""

    num_sge: 6
    wr_id: 64
    length: 32  # bytes it can take


class Destination(data.Struct):
    """Where a datagram goes: the address vector of its WQE (virtio_rdma_av, VR-4.7), as the guest
    wrote it; or the operands of BIND_MW that lie there (``operands``). It is kept beside the WQE's
    line."""

    pd: 32
    gid_index: 8
    flow_label: 20
    traffic_class: 8
    sl: 4
    dgid: 128
    hop_limit: 8
    dmac: 48


class SendFetched(data.Struct):
    """Answer to a FetchRequest on a send queue. ``line`` is taken until released (OK only).

    EMPTY: ``available`` is the avail index as read for this answer; it may lie behind ``position``.
    ``generation`` is the scheduler's, who gives it to a WQE that goes on to the requester.
    """

    status: FetchStatus
    poll: 1  # only the index was asked for
    error: 8  # WC status when WQE_ERROR
    qp: QpNumber
    position: 16
    available: 16  # avail index as now known
    head: 16
    line: 8
    generation: GENERATION
    wqe: SendWqe


class RecvFetched(data.Struct):
    """Answer to a RecvRequest. EMPTY, QUEUE_ERROR: the source has not moved on.

    The line stays valid until the next request is made."""

    status: FetchStatus
    error: 8
    queue: 16  # the virtqueue that the WQE came from
    head: 16
    line: WQE_LINE_BITS
    wqe: RecvWqe


class Upcoming(wiring.Signature):
    """A hint, seen from who gives it: with ``valid`` (a cycle) a request for a receive WQE of
    ``source`` is about to come, behind those that were hinted at before."""

    def __init__(self):
        super().__init__({"source": Out(ReceiveSource), "valid": Out(1)})


class LineStore(enum.Enum, shape=2):
    """Which memory holds the SGEs of a WQE; each numbers its lines from 0."""

    WQE = 0  # SendFetch's or RecvFetch's lines
    SINK = 1  # short sinks of READs
    LONG_SINK = 2  # long ones


class WqeRead(data.Struct):
    """Address of one 16-byte slot of a line: SGE ``slot``, or inline bytes 16*slot and on."""

    store: LineStore
    line: WQE_LINE_BITS
    slot: 5


class SinkWrite(data.Struct):
    """With ``valid`` SGE ``slot`` of the READ whose sink is ``sink``, as it lies in its WQE."""

    valid: 1
    sink: ReadSink
    slot: 5
    data: 128


class LineUse(wiring.Signature):
    """Lines that are being read, seen from who reads them: ``line`` is read from the cycle of
    ``taken`` until its ``done``; they end in the order in which they were taken. Whoever reads
    them sees to it that they are never more than ``LINE_USES``."""

    def __init__(self):
        super().__init__({"taken": Out(1), "line": Out(WQE_LINE_BITS), "done": Out(1)})


class TxSource(enum.Enum, shape=2):
    """Where the payload of a packet comes from."""

    NONE = 0
    LINE = 1  # the SGEs of a WQE line, from byte ``offset`` of the message
    INLINE = 2  # the inline bytes of a line
    KEY = 3  # ``va`` under ``key``: READ response


class TxJob(data.Struct):
    """One packet to send: headers by value and where its ``header.length`` payload bytes are.

    ``check_sink`` (with LINE, length 0): check that every SGE allows local write, fetch nothing.
    ``resume`` (with LINE): ``offset`` is where the last LINE or INLINE job ended, and it was of the
    same WQE in the same line: go on there instead of walking the SGEs from the first. 0 is always
    right and costs a cycle per SGE passed over.
    ``keep`` (with ``check_sink``): the SGEs are kept as ``sink``, for the responses.
    ``request``: the requester's; it is dropped when ``qp`` has gone back since ``generation``.
    ``qp`` is the QP that sends; with KEY also the one whose windows of type 2 may be read.
    """

    header: TxHeader
    source: TxSource
    check_sink: 1
    keep: 1
    sink: ReadSink
    request: 1
    qp: QpNumber
    generation: PACKET_GENERATION
    function: 8
    pd: 16
    line: 8
    num_sge: 6
    offset: 32
    va: 64
    key: 32
    resume: 1


class Copied(data.Struct):
    """A MEMCPY has ended, with a WC status, when all of it has been written: the entry ``number``
    of the outstanding table, of the WQE at ``position``."""

    qp: QpNumber
    number: 16
    position: 16
    status: 8


class TxChecked(data.Struct):
    """Answer to each TxJob, in order: ``status`` is a WC status; not 0: nothing was sent."""

    status: 8


class ScatterKind(enum.Enum, shape=3):
    """Where a packet's payload goes, or what to check for it."""

    NONE = 0  # the packet has no payload
    DISCARD = 1
    LINE = 2  # the SGEs of a line, from byte ``offset`` of the message
    KEY = 3  # ``va`` under ``key``: WRITE; ``offset``: see ScatterJob
    CHECK_READ = 4  # READ request: no payload, only the check that ``key`` allows remote read
    ATOMIC = 5  # the 8 bytes at ``va`` under ``key`` are changed by the next AtomicRequest
    ATOMIC_WRITE = 6  # likewise, and they are the packet's payload
    FLUSH = 7  # what was written before is made visible: ``flush_job``, ``offset`` as KEY


class ScatterJob(data.Struct):
    """Where the payload of one received packet goes; one job per packet, in packet order.

    With KEY and CHECK_READ ``offset`` is how many bytes from ``va`` on the key must allow: for a
    WRITE the rest of the message (at least ``length``), so that its first packet finds a bad range.
    Length 0: NONE, except for CHECK_READ and FLUSH, whose length is always 0. Jobs that belong to
    no packet (completions of pokes, further completions of an ACK) are NONE as well. The 8 bytes of
    an ATOMIC are not in the packet.
    ``resume`` (with LINE): as in TxJob; 0 is always right.
    """

    kind: ScatterKind
    function: 8
    pd: 16
    store: LineStore
    line: WQE_LINE_BITS
    num_sge: 6  # with LINE; with FLUSH: ``flush_job``
    offset: 32
    length: 13
    va: 64
    key: 32
    qp: QpNumber  # with KEY, CHECK_READ, ATOMIC, ATOMIC_WRITE and FLUSH: whose request it is
    resume: 1


class ScatterChecked(data.Struct):
    """Answer to each ScatterJob, in order, before payload is written: WC status (0 = may be)."""

    status: 8


class ReplyFlags(data.Struct):
    """Why the replier must look at a QP."""

    ack: 1
    nak: 1
    read: 1
    replay: 1


class Completion(data.Struct):
    """A finished WQE: returns its buffer to its ring (``ring``) and writes a CQE (``emit``)."""

    emit: 1
    cq: CqNumber
    wr_id: 64
    status: 8
    opcode: 8  # WC opcode
    vendor_error: 32
    byte_len: 32
    imm: 32  # immediate, or the key that was invalidated: ``ex``
    qp_num: 24
    src_qp: 24
    pkey_index: 4  # of a datagram, and its priority
    sl: 3
    flags: 32
    solicited: 1
    ring: 1
    queue: 16
    head: 16
    function: 8


class Effects(data.Struct):
    """What happens once a packet's payload has been issued to the host; one per ScatterJob.

    The payload waits for it: with ``discard`` it is thrown away, although its check was good.
    ``saved``: it is of a READ or an atomic, which has no completion here: ``completion.head`` is
    its place in the pool."""

    discard: 1
    saved: 1
    complete: 1
    completion: Completion
    reply: 1
    qp: QpNumber
    flags: ReplyFlags


class Oldest(data.Struct):
    """The oldest outstanding WQE of a QP, if it has any (``valid``)."""

    valid: 1
    entry: Outstanding


class Rewind(data.Struct):
    """The requester gives a WQE back: the scheduler fetches again from ``position``.

    ``blocked``: not before the completer has finished an operation of this QP; ``wake_generation``:
    of ``QpAck`` as the requester saw it, so none is missed; ``generation``: of what follows."""

    qp: QpNumber
    position: 16
    generation: GENERATION
    blocked: 1
    wake_generation: 8


class DropList(data.Struct):
    """Give back every outstanding entry of a QP (it goes to RESET)."""

    qp: QpNumber


class DropQueue(data.Struct):
    """Forget what has been fetched of a virtqueue, and use nothing more of it that was offered
    before. ``keep_index``: its used index goes on, and it is read from ``position``, which is equal
    to it; else the ring starts at 0, as ``position`` is."""

    queue: 16
    keep_index: 1
    position: 16


class ClearCounters(data.Struct):
    """The counters of a QP begin at 0 (it has been created)."""

    qp: QpNumber


class Doorbell(data.Struct):
    """A driver's notification. ``next``: the avail index with NOTIFICATION_DATA (``has_next``), or
    what the driver has seen of a CQ that it ``arms`` (ARM_CQ, and all four bytes written)."""

    queue: 16
    has_next: 1
    arms: 1
    next: 16


class QueueErrorCause(enum.Enum, shape=4):
    """Why a virtqueue was stopped (DEVICE_NEEDS_RESET)."""

    NONE = 0
    AVAIL_INDEX = 1  # more available than the queue has entries
    DESC_INDEX = 2  # head or next beyond the queue
    DESC_LOOP = 3  # chain longer than the queue
    DESC_LENGTH = 4  # length 0, or a chain longer than the element may be
    INDIRECT = 5  # bad indirect table
    DIRECTION = 6  # readable after writable, or the wrong kind of buffer
    HOST_READ = 7  # host memory did not answer
    DISABLED = 8  # queue not enabled
    ALIGNMENT = 9  # the driver enabled a queue with a misaligned ring
    PARITY = 10  # a table's row has a wrong bit; it is about no queue


class QueueError(data.Struct):
    """A virtqueue that was stopped, and why."""

    queue: 16
    cause: QueueErrorCause


class Interrupt(data.Struct):
    """Raise an MSI-X vector behind all writes issued so far."""

    function: 8
    vector: 16
