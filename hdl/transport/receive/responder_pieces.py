"""What the responder makes of a packet whose source has WQEs that take several packets."""

from amaranth.hdl import Const, Module, Mux, Value

from hdl.abi.enums import WcFlags, WcOpcode
from hdl.config import NicConfig
from hdl.ports.jobs import Effects, FetchStatus, ScatterKind
from hdl.ports.operations import unanswered
from hdl.ports.rows import RxMessage
from hdl.ports.sources import flushes, pieces_of
from hdl.wire.opcodes import Kind

from .pieces import bytes_at
from .responder_outcome import Outcome, Verdict
from .types import ResponderWork

__all__ = [
    "break_off",
    "breaks_off",
    "close",
    "closes",
    "drive_piece",
    "drive_request",
    "extra",
    "gives_back",
    "uses_request",
]

#: Places of ``wc_flags``.
_MORE, _CONSUMED, _BROKEN = (
    flag.bit_length() - 1
    for flag in (WcFlags.MP_WR_MORE_IN_MSG, WcFlags.MP_WR_CONSUMED, WcFlags.MP_WR_BROKEN)
)


def extra(config: NicConfig, work: ResponderWork, v: Verdict) -> Value:
    """Whether the verdict is one that goes in front of the packet's own."""
    if not config.mp_wr:
        return Const(0)
    return (v.outcome == Outcome.BREAK) | ((v.outcome == Outcome.CLOSE) & ~work.flush)


def breaks_off(config: NicConfig, work: ResponderWork, v: Verdict) -> Value:
    """Whether a message is lost with this packet, unless it is accepted, of which completions have
    said that it goes on; nobody has been told yet."""
    sending = pieces_of(config, work.cfg).on & (work.rx.message == RxMessage.SEND)
    return sending & unanswered(config, work.cfg.type) & ~work.flush & ~v.piece.told


def closes(config: NicConfig, work: ResponderWork, v: Verdict) -> Value:
    """Whether the open WQE goes back as it is: the packet does not fit, or a packet of the QP that
    is flushed has found it bad, and others take from it as well."""
    if not config.mp_wr:
        return Const(0)
    good, shared = v.fetched.status == FetchStatus.OK, ~flushes(work.cfg.source)
    return pieces_of(config, work.cfg).on & good & Mux(work.flush, shared, v.piece.closes)


def close(v: Verdict) -> list:
    """The open WQE goes back without a packet."""
    return [v.outcome.eq(Outcome.CLOSE), v.kind.eq(ScatterKind.NONE), v.consume.eq(1)]


def break_off(v: Verdict) -> list:
    """The message before the packet has broken off behind its first packet."""
    return [v.outcome.eq(Outcome.BREAK), v.kind.eq(ScatterKind.NONE), v.consume.eq(1)]


def gives_back(v: Verdict) -> Value:
    """Whether the open WQE, or the one that should have become it, goes back to the driver."""
    return Mux(v.outcome == Outcome.ACCEPT, v.piece.ends, v.outcome != Outcome.BREAK) & v.consume


def drive_piece(
    m: Module, config: NicConfig, work: ResponderWork, v: Verdict, effects: Effects
) -> None:
    """A source whose WQEs take several packets: each packet completes, with its place."""
    operation, done = work.operation, effects.completion
    accepted, closes = v.outcome == Outcome.ACCEPT, v.outcome == Outcome.CLOSE
    drops = (v.outcome == Outcome.GAP) | (v.outcome == Outcome.DROP) | (v.outcome == Outcome.RNR)
    broken = (v.outcome == Outcome.BREAK) | (breaks_off(config, work, v) & drops)
    sends = operation.kind == Kind.SEND
    more = accepted & sends & ~operation.last
    with m.If(pieces_of(config, work.cfg).on & (v.consume | broken)):
        m.d.comb += [
            effects.complete.eq(1),
            done.vendor_error.eq(Mux(accepted | closes, bytes_at(v.piece.at), 0)),
            done.ring.eq(gives_back(v)),
            done.flags[_MORE].eq(more),
            done.flags[_CONSUMED].eq(gives_back(v)),
            done.flags[_BROKEN].eq(broken),
        ]
        with m.If(accepted & sends):
            m.d.comb += done.byte_len.eq(work.header.length)
        with m.If(more):
            m.d.comb += done.solicited.eq(0)
        with m.If(closes | broken):
            m.d.comb += [
                done.opcode.eq(WcOpcode.RECV_NOP),
                done.byte_len.eq(0),
                done.imm.eq(0),
                done.flags.eq(Mux(broken, WcFlags.MP_WR_BROKEN, WcFlags.MP_WR_CONSUMED)),
                done.solicited.eq(0),
            ]
        with m.If(broken):
            m.d.comb += done.wr_id.eq(0)


def uses_request(config: NicConfig, work: ResponderWork, v: Verdict) -> Value:
    """Whether the source's open WQE is another one, or has less room, behind the packet."""
    return pieces_of(config, work.cfg).on & v.consume & (v.outcome != Outcome.BREAK)


def drive_request(m: Module, config: NicConfig, work: ResponderWork, v: Verdict, write) -> None:
    """The open WQE of the source behind the packet."""
    m.d.comb += [
        write.index.eq(work.cfg.source.number),
        write.row.open.eq((v.outcome == Outcome.ACCEPT) & ~v.piece.ends),
        write.row.head.eq(v.fetched.head),
        write.row.left.eq(v.piece.rest),
    ]
