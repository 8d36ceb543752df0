"""The headers of a request packet."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data

from hdl.config import NicConfig
from hdl.ports.operations import packet_code
from hdl.wire.opcodes import Kind

__all__ = ["ACK_AFTER", "Place", "request_headers"]

#: An acknowledgement is asked for on the last packet of a message and after this many packets
#: without: peers stop at a limited number of unacknowledged packets (Soft-RoCE at 129).
ACK_AFTER = 65


class Place(data.Struct):
    """Where a packet stands in its message."""

    first: 1
    last: 1
    left: 32  # bytes of the message from this packet on


def request_headers(m: Module, config: NicConfig, header, wqe, cfg, row, place) -> None:
    """Fields of the packet's headers; absent ones are not looked at by egress."""
    operation, first, last = wqe.operation, place.first, place.last
    code = packet_code(config, operation.packets, first=first, last=last, qp_type=cfg.type)
    m.d.comb += [
        header.opcode.eq(code),
        header.solicited.eq(wqe.solicited & last & operation.receive),
        header.ack_request.eq(last | (row.unasked == ACK_AFTER)),
        header.pkey.eq(cfg.pkey),
        header.dest_qp.eq(cfg.dest_qpn),
        header.psn.eq(row.psn),
        header.va.eq(wqe.remote_addr),
        header.rkey.eq(Mux(operation.kind == Kind.SEND, wqe.imm, wqe.rkey)),  # IETH or RETH
        header.dma_length.eq(place.left),
        header.imm.eq(wqe.imm),
        header.av.eq(cfg.av),
    ]
