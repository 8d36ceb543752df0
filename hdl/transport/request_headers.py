"""The headers of a request packet."""

from amaranth.hdl import Module, Mux, Signal

from hdl.abi.enums import WrOpcode
from hdl.wire.opcodes import Operation

__all__ = ["ACK_AFTER", "SENDS", "WRITES", "one_of", "request_headers"]

#: An acknowledgement is asked for on the last packet of a message and after this many packets
#: without: peers stop at a limited number of unacknowledged packets (Soft-RoCE at 129).
ACK_AFTER = 65

WRITES = (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)
WITH_IMM = (WrOpcode.RDMA_WRITE_WITH_IMM, WrOpcode.SEND_WITH_IMM)


def one_of(opcode, opcodes):
    """Whether ``opcode`` is among ``opcodes``."""
    hit = opcode == opcodes[0]
    for other in opcodes[1:]:
        hit |= opcode == other
    return hit


def request_headers(m: Module, header, wqe, cfg, row, first, last, left) -> None:
    """Fields of the packet's headers; absent ones are not looked at by egress."""
    opcode = wqe.wqe.opcode
    is_read = opcode == WrOpcode.RDMA_READ
    is_write, with_imm = one_of(opcode, WRITES), one_of(opcode, WITH_IMM)
    step = Signal(2)  # FIRST, MIDDLE, LAST, ONLY
    m.d.comb += step.eq(Mux(first, Mux(last, 3, 0), Mux(last, 2, 1)))
    sends = (Operation.SEND_FIRST, Operation.SEND_MIDDLE, Operation.SEND_LAST)
    writes = (Operation.WRITE_FIRST, Operation.WRITE_MIDDLE, Operation.WRITE_LAST)
    with m.Switch(step):
        for code, (send, write) in enumerate(zip(sends, writes, strict=True)):
            with m.Case(code):
                m.d.comb += header.opcode.eq(Mux(is_write, write, send))
        with m.Default():
            m.d.comb += header.opcode.eq(Mux(is_write, Operation.WRITE_ONLY, Operation.SEND_ONLY))
    with m.If(with_imm & last):
        # Each ..._LAST_IMM and ..._ONLY_IMM follows its plain opcode.
        with m.If(first):
            m.d.comb += header.opcode.eq(
                Mux(is_write, Operation.WRITE_ONLY_IMM, Operation.SEND_ONLY_IMM)
            )
        with m.Else():
            m.d.comb += header.opcode.eq(
                Mux(is_write, Operation.WRITE_LAST_IMM, Operation.SEND_LAST_IMM)
            )
    with m.If(is_read):
        m.d.comb += header.opcode.eq(Operation.READ_REQUEST)
    m.d.comb += [
        header.solicited.eq(wqe.wqe.solicited & last & ~is_read & (~is_write | with_imm)),
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
