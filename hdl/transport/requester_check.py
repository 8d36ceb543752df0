"""What the requester wants to know of a WQE, for one register stage."""

from amaranth.hdl import Cat, Value

from hdl.abi.enums import WrOpcode
from hdl.ports.jobs import SendWqe
from hdl.ports.rows import QpCfg

from .request_headers import SENDS, WRITES, one_of
from .segment import fit

__all__ = ["broken_rules"]


def broken_rules(wqe: SendWqe, cfg: QpCfg) -> Value:
    """Return a bit for each rule that the WQE breaks: opcode, SGEs, inline data, READs allowed."""
    is_read = wqe.opcode == WrOpcode.RDMA_READ
    return Cat(
        ~(is_read | one_of(wqe.opcode, WRITES) | one_of(wqe.opcode, SENDS)),
        wqe.num_sge > cfg.max_send_sge,
        wqe.inline & (is_read | ~fit(wqe.length, cfg.max_inline)),
        is_read & (cfg.max_rd_atomic == 0),
    )
