"""Whether an initiator of DC is connected to where a WQE of it goes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data

from hdl.abi.enums import QpType
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.jobs import Destination, SendWqe
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_type
from hdl.ports.rows import QpCfg
from hdl.ports.shared import DC_NUMBER, asked_destination, dc_destination, dc_refusal
from hdl.wire.opcodes import Kind

__all__ = ["ConnectionFacts", "DcAsked", "connection_facts"]


class DcAsked(data.Struct):
    """A pulse: initiator ``qp`` holds a request, as it is not connected to ``destination``."""

    valid: 1
    qp: QpNumber
    destination: DC_NUMBER


class ConnectionFacts(data.Struct):
    """``apart``: the WQE waits for a connection to its destination. ``refused``: that has been
    tried, and the WQE ends with ``status``."""

    apart: 1
    refused: 1
    status: 8


def connection_facts(
    m: Module, config: NicConfig, wqe: SendWqe, destination: Destination, cfg: QpCfg
) -> data.View:
    """Return the ``ConnectionFacts`` of a WQE, a cycle later, as its QP's row comes out of RAM.
    What sends nothing needs no connection."""
    facts = Signal(ConnectionFacts, name="connection")
    connects = Signal()
    status = Signal(len(dc_refusal(cfg)), reset_less=True, name="dc_status")
    differs = Signal(6, reset_less=True, name="other_destination")
    initiator = is_type(config, cfg.type, QpType.DCI)
    m.d.sync += [
        connects.eq(initiator & (wqe.operation.kind != Kind.LOCAL)),
        differs.eq(unequal(asked_destination(destination), dc_destination(cfg))),
        status.eq(dc_refusal(cfg)),
    ]
    m.d.comb += [
        facts.apart.eq(connects & differs.any()),
        facts.refused.eq(connects & ~differs.any() & (status != 0)),
        facts.status.eq(status),
    ]
    return facts
