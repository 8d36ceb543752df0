"""What differs in a completion of DC: neither end is known by the number that packets name."""

from amaranth.hdl import Module, Value

from hdl.abi.enums import QpType
from hdl.config import NicConfig
from hdl.ports.jobs import Completion
from hdl.ports.operations import is_type
from hdl.ports.rows import QpCfg

__all__ = ["name_end"]


def name_end(m: Module, config: NicConfig, cfg: QpCfg, done: Completion, number: Value) -> None:
    """Let a completion of an end of DC have ``number`` instead of the connection's, and no peer."""
    if not config.dc:
        return
    with m.If(is_type(config, cfg.type, QpType.DCI, QpType.DCT)):
        m.d.comb += [done.qp_num.eq(number), done.src_qp.eq(0)]
