"""The headers of a request packet."""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import data

from hdl.config import NicConfig
from hdl.ports.numbers import ordinal_of
from hdl.ports.operations import is_placement, packet_code, unanswered
from hdl.ports.shared import WIRE_FLUSH, copy_piece, ex, in_va, operands, wqe_flush
from hdl.wire.opcodes import Kind

__all__ = [
    "ACK_AFTER",
    "Place",
    "copy_headers",
    "datagram_headers",
    "note_departure",
    "request_headers",
]

#: An acknowledgement is asked for on the last packet of a message and after this many packets
#: without: peers stop at a limited number of unacknowledged packets (Soft-RoCE at 129).
ACK_AFTER = 65
#: UDP source ports of RoCE: from here on, to spread packets over paths (IBTA Annex A17, A17.9.2).
FIRST_PORT = 0xC000


class Place(data.Struct):
    """Where a packet stands in its message."""

    first: 1
    last: 1
    left: 32  # bytes of the message from this packet on


def note_departure(m: Module, header, *, qp, generation, behind, timeout) -> None:
    """What egress tells of the packet if it is answered; ``behind``: the PSN behind it."""
    departure, counts = header.departure, ~header.told
    m.d.comb += [
        departure.counts.eq(counts),
        departure.asks.eq(header.ack_request),
        departure.qp.eq(qp),
        departure.psn.eq(behind),
        departure.generation.eq(generation),
        departure.timeout.eq(timeout),
    ]


def request_headers(m: Module, config: NicConfig, header, wqe, cfg, row, place) -> None:
    """Fields of the packet's headers; absent ones are not looked at by egress."""
    operation, first, last = wqe.operation, place.first, place.last
    silent = unanswered(config, cfg.type)
    code = packet_code(config, operation.packets, first=first, last=last, qp_type=cfg.type)
    m.d.comb += [
        header.opcode.eq(code),
        header.solicited.eq(wqe.solicited & last & operation.receive),
        header.ack_request.eq(~silent & (last | (row.unasked == ACK_AFTER))),
        header.told.eq(silent),
        header.pkey.eq(cfg.pkey),
        header.dest_qp.eq(cfg.dest_qpn),
        header.psn.eq(row.psn),
        header.va.eq(wqe.remote_addr),
        header.rkey.eq(Mux(operation.kind == Kind.SEND, ex(wqe).invalidate_rkey, wqe.rkey)),
        header.dma_length.eq(place.left),
        header.imm.eq(ex(wqe).imm_data),
        header.av.eq(cfg.av),
    ]
    if config.placement:
        flush, asked = data.View(WIRE_FLUSH, header.imm), wqe_flush(wqe)
        with m.If(is_placement(config, operation.completion)):
            m.d.comb += [header.imm.eq(0), flush.type.eq(asked.type), flush.level.eq(asked.level)]


def copy_headers(m: Module, header, cfg, row, position) -> None:
    """What a piece of a MEMCPY says instead, but for where it stands; nothing of it leaves."""
    piece = copy_piece(header)
    m.d.comb += [
        header.copied.eq(1),
        piece.sink.eq(row.sink),
        piece.offset.eq(row.offset),
        piece.number.eq(row.entry),
        piece.position.eq(position),
        piece.pd.eq(cfg.pd),
        piece.function.eq(cfg.function),
        piece.epoch.eq(0),
        piece.refused.eq(0),
        piece.unused.eq(0),
    ]


def datagram_headers(m: Module, config: NicConfig, header, wqe, cfg, destination) -> None:
    """The fields that a datagram takes from its WQE instead of its QP.

    A Q_Key with bit 31 set means the QP's own, so no user can name a privileged one (IBTA vol 1,
    10.2.5). The UDP port follows from flow label and QPNs, so that it is the same for each pair.
    """
    named, deth = operands(wqe, destination).ud, in_va(header).deth
    qkey, qpn = named.remote_qkey, named.remote_qpn[:24]
    label, ordinal = destination.flow_label, ordinal_of(config, cfg.function)
    first = 0  # of the function's addresses
    for n in range(config.functions):
        first = Mux(ordinal == n, n * config.guest.gids, first)
    spread = label[:14] ^ label[14:] ^ cfg.qpn[:14] ^ qpn[:14]
    m.d.comb += [
        header.dest_qp.eq(qpn),
        deth.qkey.eq(Mux(qkey[31], cfg.qkey, qkey)),
        deth.src_qp.eq(cfg.qpn),
        header.av.sgid_index.eq(first + destination.gid_index),
        header.av.udp_source.eq(Cat(spread, Const(FIRST_PORT >> 14, 2))),
    ]
    for name in ("dgid", "dmac", "traffic_class", "flow_label", "hop_limit", "sl"):
        m.d.comb += header.av[name].eq(destination[name])
