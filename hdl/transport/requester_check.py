"""What the requester wants to know of a WQE, for one register stage."""

from amaranth.hdl import Cat, Value

from hdl.ports.jobs import SendWqe
from hdl.ports.operations import request_serves
from hdl.ports.rows import QpCfg

from .segment import fit

__all__ = ["broken_rules"]


def broken_rules(wqe: SendWqe, cfg: QpCfg) -> Value:
    """Return a bit for each rule that the WQE breaks: opcode, SGEs, inline data, READs allowed."""
    operation = wqe.operation
    return Cat(
        ~request_serves(operation, cfg.type),
        wqe.num_sge > cfg.max_send_sge,
        wqe.inline & (operation.data | ~fit(wqe.length, cfg.max_inline)),
        operation.data & (cfg.max_rd_atomic == 0),
    )
