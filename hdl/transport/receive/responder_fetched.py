"""What becomes of a request packet that takes a receive WQE, now that there is an answer."""

from amaranth.hdl import Const, Module, Mux

from hdl.abi.enums import WcStatus
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.jobs import FetchStatus, ScatterKind
from hdl.ports.sources import pieces_of
from hdl.wire.opcodes import Kind

from .pieces import bytes_at
from .responder_outcome import Outcome, Verdict
from .types import ResponderWork, Syndrome

__all__ = ["decide_fetched", "discard", "is_wqe", "refuse"]


def decide_fetched(m: Module, config: NicConfig, work: ResponderWork, verdict: Verdict) -> None:
    """What becomes of a packet that takes a receive WQE, now that the fetch has answered."""
    fetched, sends = verdict.fetched, work.operation.kind == Kind.SEND
    pieces = pieces_of(config, work.cfg).on if config.mp_wr else Const(0)
    misfit = sends & (verdict.facts.after > fetched.wqe.length)
    if config.mp_wr:
        whole = bytes_at(pieces_of(config, work.cfg).size)
        misfit = Mux(pieces, unequal(whole, fetched.wqe.length).any(), misfit)
    with m.Switch(fetched.status):
        with m.Case(FetchStatus.OK):
            with m.If(misfit):
                m.d.sync += [
                    *refuse(work, verdict, Syndrome.REMOTE_OPERATIONAL),
                    verdict.consume.eq(1),
                    verdict.status.eq(WcStatus.LOC_LEN_ERR),
                ]
                # From anybody: the WQE waits for another.
                with m.If(verdict.facts.datagram & ~pieces):
                    m.d.sync += [verdict.outcome.eq(Outcome.DROP), verdict.consume.eq(0)]
            with m.Else():
                m.d.sync += [
                    verdict.consume.eq(work.operation.last | pieces),
                    verdict.kind.eq(Mux(sends, ScatterKind.LINE, ScatterKind.KEY)),
                ]
                with m.If(work.header.length == 0):
                    m.d.sync += verdict.kind.eq(ScatterKind.NONE)
        with m.Case(FetchStatus.EMPTY):
            m.d.sync += [
                verdict.outcome.eq(Outcome.RNR),
                verdict.syndrome.eq(Syndrome.RNR_NAK | work.cfg.min_rnr_timer),
            ]
        with m.Case(FetchStatus.WQE_ERROR):
            m.d.sync += [
                *refuse(work, verdict, Syndrome.REMOTE_OPERATIONAL),
                verdict.consume.eq(1),
                verdict.status.eq(fetched.error),
            ]
        with m.Case(FetchStatus.QUEUE_ERROR):
            m.d.sync += refuse(work, verdict, Syndrome.REMOTE_OPERATIONAL)


def discard(work):
    """The job of a packet that is not executed."""
    return Mux(work.header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)


def refuse(work, verdict, syndrome):
    """A NAK; the QP stops. An invalid request is the peer's matter: without answers it is dropped,
    and the QP goes on."""
    drops = verdict.facts.silent if syndrome is Syndrome.INVALID_REQUEST else 0
    return [
        verdict.outcome.eq(Mux(drops, Outcome.DROP, Outcome.FAIL)),
        verdict.syndrome.eq(syndrome),
        verdict.kind.eq(discard(work)),
    ]


def is_wqe(fetched):
    """Whether there is a receive WQE, good or bad."""
    return (fetched.status == FetchStatus.OK) | (fetched.status == FetchStatus.WQE_ERROR)
