"""Whether an initiator of DC is connected to where a WQE of it goes."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data

from hdl.abi.enums import QpType
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.jobs import Destination, FetchStatus, SendFetched
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_type
from hdl.ports.rows import QpCfg, QpState
from hdl.ports.shared import (
    DC_NUMBER,
    DC_STREAM,
    asked_destination,
    asked_stream,
    dc_destination,
    dc_refusal,
    dc_stream,
    has_streams,
)
from hdl.wire.opcodes import Kind

__all__ = ["ConnectionFacts", "DcAsked", "connection_facts"]


class DcAsked(data.Struct):
    """A pulse: initiator ``qp`` holds a request, as it is not connected to ``destination``, or is
    at another stream than ``stream``."""

    valid: 1
    qp: QpNumber
    destination: DC_NUMBER
    stream: DC_STREAM


class ConnectionFacts(data.Struct):
    """``apart``: the WQE waits for a connection to its destination. ``parted``: it waits whatever
    else is wrong, as its initiator is nowhere, or has streams and is not at its one. ``refused``: a
    connection has been tried, and the WQE ends with ``status``."""

    apart: 1
    parted: 1
    refused: 1
    status: 8


def connection_facts(
    m: Module,
    config: NicConfig,
    wqe: SendFetched,
    destination: Destination,
    cfg: QpCfg,
    stopped: Value,
) -> data.View:
    """Return the ``ConnectionFacts`` of a WQE, a cycle later, as its QP's row comes out of RAM.
    What sends nothing needs no connection. ``stopped``, a cycle later too: the QP is in error.

    Nothing begins while the row has no destination, so that the firmware can write what belongs to
    the requester then. With streams an error ends the one that the initiator is at, whose WQEs are
    flushed, and a WQE of another one waits. What says nothing of its stream, as it could not be
    read, is of the one of before."""
    facts = Signal(ConnectionFacts, name="connection")
    connects, streams, lost = Signal(), Signal(), Signal(name="lost")
    status = Signal(len(dc_refusal(cfg)), reset_less=True, name="dc_status")
    differs = Signal(6, reset_less=True, name="other_destination")
    strays = Signal(6, reset_less=True, name="other_stream")
    initiator, read = is_type(config, cfg.type, QpType.DCI), wqe.status == FetchStatus.OK
    m.d.sync += [
        connects.eq(initiator & (wqe.wqe.operation.kind != Kind.LOCAL)),
        streams.eq(initiator & has_streams(cfg) & read & (cfg.state != QpState.ERR)),
        lost.eq(initiator & (dc_destination(cfg) == 0) & (dc_refusal(cfg) == 0)),
        differs.eq(unequal(asked_destination(destination), dc_destination(cfg))),
        strays.eq(unequal(asked_stream(destination), dc_stream(cfg))),
        status.eq(dc_refusal(cfg)),
    ]
    elsewhere, other = Signal(), Signal()
    m.d.comb += [
        elsewhere.eq(connects & differs.any()),
        other.eq(strays.any()),
        facts.apart.eq(elsewhere | (connects & other)),
        facts.parted.eq((streams & other) | (~stopped & (lost | (streams & elsewhere)))),
        facts.refused.eq(connects & ~elsewhere & ~other & (status != 0)),
        facts.status.eq(status),
    ]
    return facts
