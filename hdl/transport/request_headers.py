"""The headers of a request packet."""

from amaranth.hdl import Module

from hdl.ports.operations import packet_code

__all__ = ["ACK_AFTER", "request_headers"]

#: An acknowledgement is asked for on the last packet of a message and after this many packets
#: without: peers stop at a limited number of unacknowledged packets (Soft-RoCE at 129).
ACK_AFTER = 65


def request_headers(m: Module, header, wqe, cfg, row, first, last, left) -> None:
    """Fields of the packet's headers; absent ones are not looked at by egress."""
    operation = wqe.wqe.operation
    m.d.comb += [
        header.opcode.eq(packet_code(operation.packets, first=first, last=last, qp_type=cfg.type)),
        header.solicited.eq(wqe.wqe.solicited & last & operation.receive),
        header.ack_request.eq(last | (row.unasked == ACK_AFTER)),
        header.pkey.eq(cfg.pkey),
        header.dest_qp.eq(cfg.dest_qpn),
        header.psn.eq(row.psn),
        header.va.eq(wqe.wqe.remote_addr),
        header.rkey.eq(wqe.wqe.rkey),
        header.dma_length.eq(left),
        header.imm.eq(wqe.wqe.imm),
        header.av.eq(cfg.av),
    ]
