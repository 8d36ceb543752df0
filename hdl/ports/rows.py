"""Rows of the context tables. Each has one owner that writes it while a QP is live; others read
copies.

| table    | owner (room/component)            | readers                                   |
|----------|-----------------------------------|-------------------------------------------|
| qp_cfg   | firmware (shadow row and commit)  | scheduler, requester, replier, receive    |
| qp_fetch | transport/scheduler               | -                                         |
| qp_tx    | transport/requester               | scheduler                                 |
| qp_ack   | transport/receive (completer)     | scheduler, requester                      |
| qp_sent  | transport/departures              | transport/receive                         |
| qp_rx    | transport/commit                  | requester, replier                        |
|          | (and a speculative copy)          | transport/receive (responder)             |
| qp_reply | transport/replier                 | receive                                   |
| mr       | context/region_keys (firmware)    | memory (gather side, scatter side)        |
| cq       | queues/completion                 | -                                         |
| queue    | host/virtio (driver's registers)  | queues                                    |

Indices: QP ``QpNumber`` (pair index), CQ ``CqNumber``, MR 16 bits, virtqueue 16, PD 16, function 8.
"""

from amaranth.lib import data, enum

from hdl.abi.wqe_formats import FORMAT_BITS
from hdl.config import NicConfig
from hdl.wire.constants import MAPPED_BITS

from .headers import AddressVector
from .numbers import CqNumber, QpNumber

__all__ = [
    "GENERATION",
    "QpState",
    "QpCfg",
    "QpFetch",
    "QpTx",
    "QpAck",
    "QpSent",
    "QpRx",
    "QpReply",
    "ReceiveSource",
    "RingRules",
    "RxMessage",
    "SourceKind",
    "ReadResource",
    "ReadSink",
    "Outstanding",
    "MrType",
    "PlacementRights",
    "MrRow",
    "kept_bits",
    "CqRow",
    "QueueRow",
]


#: Bits of a generation. No more WQEs wait between the scheduler and the requester than it can count
#: rewinds (``Requester``), so no WQE is taken for one of a generation that has come again.
GENERATION = 8


class QpState(enum.Enum, shape=3):
    """States of a QP (VR-3.25); the values are the ABI's."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class SourceKind(enum.Enum, shape=2):
    """What kind of queue a receive source is."""

    PRIVATE = 0  # the receive queue of one QP, whose pair index is the source's number
    SHARED = 1  # a shared receive queue, in the receive queue of a pair that is no QP's
    NAMED = 2  # none of its own: each packet names a shared one (XRC), or it is an initiator


class ReceiveSource(data.Struct):
    """Where the receive WQEs of a QP come from. How far it has been used up is the source's own
    matter (``RecvSources``)."""

    kind: SourceKind  # whether the queue is the QP's own or a shared one
    number: QpNumber  # pair index of that queue


class PlacementRights(data.Struct):
    """What a FLUSH may bring about, or does; the bits are those of its header."""

    visible: 1  # what was written is seen by everybody
    persistent: 1  # and stays when the power fails


class QpCfg(data.Struct):
    """What MODIFY_QP decides. Both ends of a connection of DC have numbers in places that others
    need: ``dc_destination`` and the like (hdl/ports/shared.py)."""

    state: QpState  # state of the QP, ABI values
    type: 3  # ``QP_CODE`` (hdl/wire/opcodes.py): RC 2, UC 3, UD 4, DC 0; ``XRC_QUEUE``
    function: 8  # guest function that the QP belongs to
    pd: 16  # protection domain of the QP; of an XRC target, which has none: its XRC domain
    recv_pd: 16  # protection domain of the regions which the WQEs of ``source`` name
    send_cq: CqNumber  # completion queue of its send WQEs
    recv_cq: CqNumber  # completion queue of the WQEs of ``source`` that this QP takes
    source: ReceiveSource
    signal_all: 1  # each send WQE gets a CQE, whatever it asks for
    path_mtu: 3  # ABI values: 1 = 256 ... 5 = 4096
    qpn: 24  # this QP's number on the wire; its low bits are the pair index
    dest_qpn: 24  # the peer's QP number
    pkey: 16  # P_Key that its packets have
    qkey: 32  # Q_Key that datagrams to it must have; ``pieces_of`` lends it to other types
    remote_write: 1  # the peer may write
    remote_read: 1  # the peer may read
    remote_atomic: 1  # the peer may ask for atomics
    binds: 1  # it may bind memory windows
    max_rd_atomic: 8  # READs this QP may have outstanding
    max_dest_rd_atomic: (
        8  # READs it answers at a time: size of its slice of the pool (power of two)
    )
    read_base: 16  # first entry of its slice of the read resource pool
    min_rnr_timer: 5  # code of the pause that its RNR NAKs ask for
    timeout: 5  # code of the time after which an answer is late; 0: never
    retry_count: 3  # how often it goes back without progress
    rnr_retry: 3  # how often it goes back for RNR NAKs; 7: without end
    max_send_sge: 6  # SGEs that a send WQE may have
    max_recv_sge: 6  # SGEs that a receive WQE may have
    max_inline: 10  # bytes of inline payload that a send WQE may have
    av: AddressVector
    placement: 1  # FLUSH and ATOMIC WRITE may come, and be posted
    flush: PlacementRights  # what FLUSH of the peer may ask for
    copies: 1  # MEMCPY may be posted


class QpFetch(data.Struct):
    """Scheduler: how far the send queue has been fetched."""

    position: 16  # avail-ring position of the next answer wanted
    asked: 16  # next position to ask for
    available: 16  # avail index last read from the driver, or given by its notification
    ahead: 3  # log2 of how many may be asked for at a time, by the bytes of the last one
    reading: 1  # READs are among them: no more are asked for than can be started
    polled: 1  # the index has been asked for since the last news of it
    blocked: 1  # the requester gave a WQE back; wait for the completer's wake
    capped: 1  # it has its share of the outstanding table: it asks for more with the next wake
    generation: GENERATION  # what is fetched from now on belongs to it; see ``QpTx``


class ReadSink(data.Struct):
    """Where the SGEs of a READ lie that take its data: one of the short sinks, or, for a READ with
    many SGEs, one of the ``long`` ones. It is the READ's as long as that has an outstanding entry,
    and until its last response has been placed."""

    number: 13  # the sink, of those of its kind
    long: 1  # it is one of the long sinks


class QpTx(data.Struct):
    """Requester: the next packet to send."""

    position: 16  # avail-ring position of the WQE to send from
    # First position without an outstanding entry: ``position``, unless in mid-WQE or sent again.
    high: 16
    offset: 32  # payload bytes of the WQE already sent
    psn: 24  # PSN of the next packet
    entry: 16  # outstanding-table entry of the WQE before ``high``
    sink: ReadSink  # that WQE's sink, if it is a READ
    whole: 1  # that WQE has been sent to its end: its entry is complete
    reads: 8  # READs started, modulo 256
    unasked: 7  # packets since the last that asked for an acknowledgement
    error: 1  # a WQE failed here: everything later is flushed
    copying: 1  # the WQE before ``high`` is a MEMCPY, which counts among the READs
    # Counts the rewinds of the scheduler, modulo 256. A WQE of another generation was fetched
    # before the last one, and is dropped.
    generation: GENERATION


class QpAck(data.Struct):
    """Completer: the oldest unacknowledged packet, and the send side's error."""

    psn: 24  # oldest unacknowledged PSN
    position: 16  # avail-ring position of the oldest WQE that has not ended
    start: 24  # first PSN of that WQE: a QP that goes back sends from here on
    reads: 8  # READs finished, modulo 256
    wake_generation: 8  # counts wakes: tells the scheduler of one that it could have missed
    read_begun: 1  # the head READ has received its first response
    error: 1  # the send side stopped on an error: only flushes go on
    status: 8  # of the oldest WQE, which was not complete yet when its NAK came; 0: none
    resent: 1  # the head READ has been asked for again: any response may be its first now
    recovering: 1  # the QP has gone back, and nothing new has been acknowledged since
    waiting: 1  # it sends nothing until the time is over that an RNR NAK has asked for
    retries: 3  # times that it has gone back since the last progress
    rnr_retries: 3  # RNR NAKs since the last progress


class QpSent(data.Struct):
    """Departures: which requests have left the card. What has not left it cannot be answered."""

    psn: 24  # PSN behind the newest packet that has left; of a READ, behind its last response
    asked: 24  # likewise, of the last packet that asks for an answer
    waits: 1  # 0: the QP has gone back, and no packet that asks has left since


class RxMessage(enum.Enum, shape=2):
    """What kind of message the responder is in the middle of."""

    NONE = 0
    SEND = 1
    WRITE = 2


class QpRx(data.Struct):
    """Responder: what is expected next, and what the replier must say."""

    psn: 24  # expected PSN
    msn: 24  # messages completed
    ack_psn: 24  # PSN of an ACK: of the newest packet that was accepted, unless of a READ
    ack_msn: 24  # MSN of an ACK: messages completed up to ``ack_psn``
    message: RxMessage  # kind of the message in which it is; SEND: it holds a receive WQE
    head: 16  # first descriptor of that receive WQE
    held: 1  # UC, UD: it holds one of a message that was dropped, for the next
    offset: 32  # payload bytes of the current message already placed
    va: 64  # WRITE: start of the message
    rkey: 32  # WRITE: key of the message
    dma_length: 32  # WRITE: bytes of the message
    nak_sent: 1  # a PSN sequence or RNR NAK for this gap is out: no second one
    syndrome: 8  # of the NAK to send when the replier is told so
    read_tail: 8  # read resources taken, modulo 256
    read_wrapped: 1  # every resource of the slice has been used: it holds that many READs
    replay: 8  # duplicate READ: the resource (modulo 256) from which to answer again
    replay_skip: 24  # duplicate READ: packets of that resource to leave out
    replay_seq: 4  # changes with each replay that is asked for; never back to 0
    error: 1  # the receive side stopped on an error: nothing is accepted, receives are flushed
    srq: 24  # XRC target: the receive queue that its current message has named


class QpReply(data.Struct):
    """Replier: the READ being answered."""

    read_head: 8  # next resource to answer, modulo 256
    answered: 8  # first one never answered; ``read_head`` is behind it in a replay
    packet: 24  # packets of it already sent
    replay_seq: 4  # QpRx.replay_seq of the last replay begun; not equal: go to ``replay`` first
    generation: (
        1  # changes with each NAK for a refused response: later ones of the old generation get none
    )


class ReadResource(data.Struct):
    """One READ or atomic, FLUSH or ATOMIC WRITE that the responder has accepted; the result of an
    atomic lies beside."""

    va: 64
    rkey: 32
    length: 32
    psn: 24
    msn: 24
    number: 8  # modulo 256, as in ``QpReply.read_head``; another one: it has been overwritten
    atomic: 1  # its answer waits for its result, of ``length`` bytes: 0 for FLUSH, ATOMIC WRITE
    single: 1  # the answer is one packet
    pd: 16  # protection domain of its key, on cards with XRC: else it is the QP's


class Outstanding(data.Struct):
    """One WQE on its way: what the completer needs, and the next of the same QP."""

    position: 16  # avail-ring position in the send queue
    head: 16  # descriptor to return
    wr_id: 64
    completion: 7  # WC opcode of its CQE, ABI values
    data: 1  # data answer it: a READ, whose ``num_sge`` SGEs are in ``sink``
    num_sge: 6
    sink: ReadSink
    invalidate: 1  # with its end ``key`` becomes invalid
    key: 32
    signaled: 1
    length: 32  # message bytes
    first_psn: 24
    last_psn: 24
    complete: 1  # every packet was sent at least once, so last_psn stands
    status: 8  # WC status; not 0: finish in error when it becomes the oldest
    function: 8


class MrType(enum.Enum, shape=4):
    """Kind of a key. ``KEYS`` (hdl/ports/keys.py) says what each is.

    The numbers are chosen so that a bit tells each property, and a new kind may have any other.
    Bit 0: bus addresses. Bit 1: pages, a list of le64 addresses in host memory. Bit 2: from
    CREATE_MR, so work requests may change its key; with bit 0 from CREATE_MKEY: an indirect key,
    with bit 1 one that has a layout (``layout_of`` in hdl/ports/keys.py). Without bit 0 and 1 the
    region has no valid key (VR-5.21). Bit 3: a memory window, which uses the page list of the
    region that it is bound to; with bit 2 its key may be invalidated, and while it is bound only
    one QP may use it (type 2)."""

    INVALID = 0
    DMA = 1
    PAGES = 2
    FREE = 4
    MKEY_FREE = 5  # without a layout
    FAST = 6
    MKEY = 7
    WINDOW_1 = 8  # not bound
    BOUND_1 = 10
    WINDOW_2 = 12  # not bound
    BOUND_2 = 14


class MrRow(data.Struct):
    """One memory region. Access bits as in the ABI: local write 0, remote write 1, read 2, atomic
    3.
    """

    type: MrType  # kind of the key
    function: 3  # guest function that the region belongs to
    pd: 16  # its protection domain
    tag: 8  # low byte of the keys
    access: 4  # local write 0, remote write 1, remote read 2, remote atomic 3
    va: 64  # address that SGEs and peers use for the first byte
    length: 47  # bytes; DMA: all ones, which stand for 64
    block: 58  # bus address / 64: the 64 bytes that hold the page list's first entry
    start: 48  # place of the first byte behind the page that this block begins with
    bind: 1  # windows may be bound to it; MKEY: peers may invalidate it
    parent: 16  # WINDOW: whose page list it uses, as the cache of pages knows it
    qp: 14  # BOUND_2: the QP that has bound it
    page_size: 2  # number of its pages' size in ``PAGE_SHIFTS`` (hdl/abi/virtio_rdma.py)
    two_level: 1  # the list at ``block`` names pages of the page list
    flush: PlacementRights  # remote rights beside those of ``access``


def kept_bits(config: NicConfig) -> dict[str, int]:
    """Return the bits of a row that a card may need, by the name of the row's table. Of a table
    that is not named it may need all."""
    address = config.address_bits
    cuts = {"va": address, "length": address, "block": address - 6}
    if not config.page_sizes:
        cuts |= {"page_size": 0, "start": address}
    if not config.two_level:
        cuts |= {"two_level": 0}
    if not config.windows:
        cuts |= {"bind": int(config.mkeys), "parent": 0, "qp": 0}
    if config.mkeys:
        cuts |= {"block": 58}  # a layout is as wide, whatever addresses are
    if not config.placement:
        cuts |= {"flush": 0}
    # Of a message's address one bit more tells that it is beyond all regions.
    responder = _kept(QpRx, {"va": address + 1} | ({} if config.xrc else {"srq": 0}))
    absent: dict[str, int] = {}
    if not config.placement:
        absent |= {"placement": 0, "flush": 0}
    if not config.memcpy:
        absent |= {"copies": 0}
    pair = _kept(QpCfg, absent) if absent else -1
    if not config.ipv6:
        vector = data.Layout.cast(QpCfg)["av"].offset
        fields = data.Layout.cast(AddressVector)
        label, prefix = fields["flow_label"], fields["dgid"]
        pair ^= ((1 << label.width) - 1) << vector + label.offset
        pair ^= ((1 << MAPPED_BITS) - 1) << vector + prefix.offset
    rings = _kept(QueueRow, dict.fromkeys(("desc", "driver", "device"), address) | {"rules": 0})
    return {
        "mrs": _kept(MrRow, cuts),
        "qp_cfg": pair,
        **({} if config.memcpy else {"qp_tx": _kept(QpTx, {"copying": 0})}),
        "qp_rx": responder,
        "qp_rx_ahead": responder,
        "queues": rings,
        "resources": _kept(ReadResource, {} if config.xrc else {"pd": 0}),
    }


def _kept(row: type[data.Struct], cuts: dict[str, int]) -> int:
    """The bits of a row, of the fields of ``cuts`` no more than that many."""
    return sum(
        ((1 << min(cuts.get(name, field.width), field.width)) - 1) << field.offset
        for name, field in data.Layout.cast(row)
    )


class CqRow(data.Struct):
    """Completion queue."""

    position: 16  # next avail-ring position
    available: 16  # avail index last read
    armed: 2  # REQ_NOTIFY_CQ flags: solicited 1, next 2
    error: 1  # overflow: nothing is written any more


class RingRules(data.Struct):
    """How a virtqueue and its elements are laid out, and what its two sides tell each other: the
    features that the driver has accepted (Virtio 1.2, 6), the same for all queues of a function."""

    packed: 1  # RING_PACKED
    event_idx: 1  # EVENT_IDX
    indirect: 1  # INDIRECT_DESC
    in_order: 1  # IN_ORDER
    wqe_format: FORMAT_BITS  # of the WQEs of a send or receive queue: a row of WQE_FORMATS


class QueueRow(data.Struct):
    """One virtqueue as the driver set it up."""

    enabled: 1  # the driver has enabled it
    size_log2: 4  # descriptors, power of two
    desc: 64  # bus address of the descriptor table
    driver: 64  # bus address of the avail ring
    device: 64  # bus address of the used ring
    vector: 16  # MSI-X vector; 0xFFFF = none
    fresh: 1  # reset since the firmware last cleared this bit: ring positions start at 0
    rules: RingRules  # of the function; it is not stored with the queue
