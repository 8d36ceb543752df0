"""Bits that several kinds of packet or work request have in common, as unions.

A row holds such bits once. Each kind of packet or work request is a member of the union, and who
deals with one kind reads and writes its member: so it is said what the bits are there.
"""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from hdl.abi import virtio_rdma
from hdl.abi.extensions import WR_BIND, WR_MKEY
from hdl.abi.layout import Struct, amaranth_layout
from hdl.abi.mkeys import LAYOUTS_AT
from hdl.abi.virtio_rdma import POST_SEND, WR_RDMA, WR_REG, WR_UD
from hdl.wire.gateware import swap

from .rows import PlacementRights, ReadSink, SourceKind

__all__ = [
    "BIND_FIELDS",
    "COPY",
    "EX",
    "FLUSH_JOB",
    "IN_VA",
    "OPERANDS",
    "VA",
    "CONTROL_BYTES",
    "DC_NUMBER",
    "DC_STREAM",
    "WQE_FLUSH",
    "WIRE_FLUSH",
    "asked_destination",
    "asked_stream",
    "control_content",
    "copy_piece",
    "dc_destination",
    "dc_initiator",
    "dc_refusal",
    "dc_stream",
    "dc_target",
    "ex",
    "flush_job",
    "has_streams",
    "in_va",
    "may_set_layouts",
    "named_srq",
    "operands",
    "remote_srq",
    "received_control",
    "sent_srq",
    "takes_nothing",
    "wire_flush",
    "wqe_flush",
    "written_word",
]

#: ``imm`` of rows: ``imm_data`` is raw bytes; ``invalidate_rkey``, a number, is the key that the
#: packet or the work request invalidates.
EX: data.UnionLayout = amaranth_layout(virtio_rdma.EX)

#: ``imm`` of a packet's row if it is a FLUSH: its FETH, as raw bytes.
WIRE_FLUSH = data.StructLayout(
    {"unused": 24, "type": PlacementRights, "unknown": 2, "level": 2, "reserved": 2}
)
#: ``imm`` of a ``SendWqe`` if that is a FLUSH: FlushType and FlushLevel.
WQE_FLUSH = data.StructLayout(
    {"type": PlacementRights, "unknown": 6, "level": 1, "beyond": 7, "unused": 16}
)
#: ``num_sge`` of a ScatterJob that is a FLUSH, as it has no SGEs.
FLUSH_JOB = data.StructLayout({"type": PlacementRights, "whole": 1, "unused": 3})

#: ``va`` of headers.
VA = data.UnionLayout(
    {
        "address": 64,  # RETH, AtomicETH; of AtomicAckETH the value
        "aeth": data.StructLayout({"unused": 32, "msn": 24, "syndrome": 8}),
        "deth": data.StructLayout(
            {
                "src_qp": 24,
                # What ingress finds, in DETH's reserved byte.
                "priority": 3,
                "pkey_index": 4,
                "pkey_hit": 1,
                "qkey": 32,
            }
        ),
    }
)
#: Fields of extended headers that lie in ``va`` -> the member of ``VA`` that has them.
IN_VA = {
    name: member for member in ("aeth", "deth") for name, _ in VA[member].shape if name != "unused"
}

#: ``va``, ``rkey`` and ``imm`` of a ``TxHeader`` that is a piece of a MEMCPY; the QP is that of
#: ``departure``, and ``length`` the bytes of the piece.
COPY = data.StructLayout(
    {
        "sink": ReadSink,  # its first SGE is the destination
        "offset": 32,  # of the piece in that SGE
        "number": 16,  # of the WQE's entry in the outstanding table
        "begins": 1,  # the first piece: it has no bytes, both ranges are checked with it
        "ends": 1,  # the last piece
        "position": 16,  # of the WQE in its send queue
        "pd": 16,
        "function": 8,
        "epoch": 1,  # of the drain, see ``LocalCopy``
        "refused": 1,  # the gather's check was not good: it has no bytes
        "unused": 22,
    }
)

#: The beginning of a send WQE's ``wr``, as far as a card keeps it, by what the work request is.
OPERANDS = data.UnionLayout(
    {
        "rdma": amaranth_layout(WR_RDMA),
        "ud": amaranth_layout(Struct("wr_ud", *WR_UD.fields[:2])),  # but for the address vector
        "reg": amaranth_layout(WR_REG),
        "bind": amaranth_layout(WR_BIND),
        "mkey": amaranth_layout(WR_MKEY),
    }
)
#: Fields of a ``Destination`` in which the operands of BIND_MW and of layouts go on.
BIND_FIELDS = ("pd", "flow_label", "traffic_class", "sl", "dgid")

#: Bits of the number of a shared receive queue on the wire.
SRQ_BITS = 24
#: Where a WQE has the queue that a request of XRC names, counted from its address vector's GID.
#: A request of DC has the numbers of its destination and of its stream there, of so many bits.
DC_NUMBER = DC_STREAM = 16
#: Bytes behind the BTH that a packet of ``DcControl`` has at most, but for zeros at its end.
CONTROL_BYTES = 25
_SRQ_AT = 8 * (POST_SEND.offset("wr.xrc.remote_srqn") - POST_SEND.offset("wr.ud.av.dgid"))


def ex(row) -> data.View:
    """The ``imm`` of a row, an ``EX``."""
    return data.View(EX, row.imm)


def copy_piece(header) -> data.View:
    """What a ``TxHeader`` that is a piece of a MEMCPY says, a ``COPY``."""
    return data.View(COPY, Cat(header.va, header.rkey, header.imm))


def wire_flush(header) -> data.View:
    """The ``imm`` of a packet's row, a ``WIRE_FLUSH``."""
    return data.View(WIRE_FLUSH, header.imm)


def wqe_flush(wqe) -> data.View:
    """The ``imm`` of a ``SendWqe``, a ``WQE_FLUSH``."""
    return data.View(WQE_FLUSH, wqe.imm)


def flush_job(job) -> data.View:
    """The ``num_sge`` of a ScatterJob, a ``FLUSH_JOB``."""
    return data.View(FLUSH_JOB, job.num_sge)


def written_word(header) -> Value:
    """The payload of an ATOMIC WRITE, byte 0 in bits 7:0. It lies behind RETH, where AtomicETH has
    the second half of its first operand and the first half of its second one."""
    return Cat(swap(header.swap_add[:32]), swap(header.compare[32:]))


def remote_srq(destination) -> Value:
    """The number of the receive queue that a request of XRC names, in the ``Destination`` that its
    WQE has the address vector of a datagram in."""
    return destination.dgid[_SRQ_AT : _SRQ_AT + SRQ_BITS]


def sent_srq(header) -> Value:
    """XRCETH of a ``TxHeader``: only answers have an MSN, and only requests this."""
    return header.msn


def named_srq(header) -> Value:
    """XRCETH of an ``RxHeader`` or of a row of ``KEPT``. It has the place of the sender's MAC
    address, for which nobody asks behind ingress."""
    return header.src_mac[:SRQ_BITS]


def asked_destination(destination) -> Value:
    """The destination that a request of DC names, in the ``Destination`` that its WQE has the
    address vector of a datagram in."""
    return remote_srq(destination)[:DC_NUMBER]


def asked_stream(destination) -> Value:
    """The stream that a request of DC is of, behind ``asked_destination``."""
    return destination.dgid[_SRQ_AT + DC_NUMBER :][:DC_STREAM]


def takes_nothing(cfg) -> Value:
    """Whether a QP has no receive WQEs of its own: of DC it is an initiator then."""
    return cfg.source.kind == SourceKind.NAMED


def dc_destination(cfg) -> Value:
    """The destination that an initiator of DC is connected to, or that has refused it; 0: it is
    not. As it receives nothing, it has this where others have the PD of what they receive."""
    return cfg.recv_pd[:DC_NUMBER]


def dc_refusal(cfg) -> Value:
    """WC status of requests to ``dc_destination``: not SUCCESS if an initiator of DC could not
    connect. It sends no RNR NAKs, whose timer others have there."""
    return cfg.min_rnr_timer


def dc_stream(cfg) -> Value:
    """The stream of the requests that an initiator of DC is at, or of those that are flushed after
    a failure. As it receives nothing, it has this where others have the CQ of what they receive."""
    return Cat(cfg.recv_cq, cfg.max_recv_sge)[:DC_STREAM]


def has_streams(cfg) -> Value:
    """Whether an initiator of DC has streams. No peer has rights at it, which others have there."""
    return cfg.remote_write


def dc_initiator(cfg) -> Value:
    """The QP number of an initiator of DC, as its completions have it; packets name it by another
    one with each connection. It answers no READs."""
    return Cat(cfg.max_dest_rd_atomic, cfg.read_base)


def dc_target(cfg) -> Value:
    """The number of the target that an end of DC belongs to, as completions have it; packets name
    that end by its own number. It sends no requests."""
    return Cat(cfg.max_rd_atomic, cfg.max_inline, cfg.max_send_sge)


def received_control(header) -> Value:
    """The first 28 bytes behind the BTH, as raw bytes: where AtomicETH lies."""
    fields = (header.va, header.rkey, header.swap_add, header.compare)
    return Cat(swap(field) for field in fields)


def control_content(header) -> Value:
    """``CONTROL_BYTES`` bytes behind the BTH of a ``TxHeader`` that is a packet of ``DcControl``,
    as raw bytes. Nothing is noted of it when it departs, so it has the last one there."""
    fields = (header.va, header.rkey, header.dma_length, header.imm, header.msn, header.syndrome)
    return Cat(*fields, header.departure.psn[:8])


def in_va(row) -> data.View:
    """The ``va`` of a header, a ``VA``."""
    return data.View(VA, row.va)


def may_set_layouts(cfg) -> Value:
    """Whether a QP may give indirect keys layouts. Only datagrams have a Q_Key, and ``pieces_of``
    leaves this bit of it free."""
    return cfg.qkey[LAYOUTS_AT]


def operands(wqe, destination=None) -> data.View:
    """The ``OPERANDS`` of a ``SendWqe``. BIND_MW and layouts have some where a datagram has
    its address vector, the ``Destination``; without one these are 0, and the other members are
    whole."""
    found = Cat(wqe.remote_addr, wqe.rkey)
    if destination is not None:
        found = Cat(found, (destination[name] for name in BIND_FIELDS))
    return data.View(OPERANDS, Cat(found, Const(0, OPERANDS.size))[: OPERANDS.size])
