"""What becomes of the oldest outstanding WQE when a response, or a poke, looks at it.

The completer's registers, the decision, and the job and the effects that follow from it.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data

from hdl.abi.enums import WcStatus
from hdl.config import ACTIVATION_FLAGS, NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.jobs import Effects, LineStore, Oldest, ScatterJob, ScatterKind
from hdl.ports.operations import is_copy, unanswered
from hdl.ports.rows import QpAck
from hdl.ports.shared import ex

from ..outstanding.types import Pop
from ..recovery.policy import Acknowledged, AtHand, Cause, Loss, Recovery, Verdict
from ..recovery.qp_timers import TimerSet
from .completer_check import EntryFacts, Response, ResponseFacts
from .types import CompleterWork, Events

__all__ = [
    "CompleterState",
    "Decision",
    "decide",
    "drive_effects",
    "drive_job",
    "is_data",
]


#: WQEs that nothing answers which one poke finishes, at most: others come in between.
MOST_SENT = 15


class CompleterState(data.Struct):
    """The completer's registers for the packet or poke in hand."""

    work: CompleterWork
    differs: 5  # its QP and that of ``Coming``, in pieces
    ack: QpAck  # working copy of the QP's row,
    changed: 1  # which differs from the table
    oldest: Oldest  # outstanding WQE
    said: ResponseFacts
    facts: EntryFacts
    offset: 32  # bytes of the READ before the packet
    job_pending: 1  # the packet has not had its job yet
    finish: 1  # the oldest WQE ends,
    status: 8  # with this status
    early: 1  # it leaves the list before its job is taken
    more: 1  # the next WQE is looked at after this one
    sent: 4  # WQEs that the poke has finished
    placed: 1  # a READ response's payload is where it belongs
    kind: ScatterKind  # of the job
    poke: ACTIVATION_FLAGS  # ReceiveFlags to ask for
    pop: Pop
    timer: TimerSet  # what becomes of the QP's timer


class Decision(data.Struct):
    """The decision about one WQE; all 0: it stays as it is, and so does the QP's row."""

    finish: 1  # the WQE ends,
    status: 8  # with this status;
    more: 1  # the packet reaches beyond it: the next one has to be looked at
    place: 1  # the packet is the expected READ response of the WQE
    fails: 1  # it ends in error with ``status``, as soon as it is complete
    acknowledged: Acknowledged
    loss: Loss
    verdict: Verdict  # what the recovery policy makes of the loss
    poke: ACTIVATION_FLAGS  # ReceiveFlags to ask for
    events: Events


def is_data(s: CompleterState):
    """The packet is a READ response."""
    return ~s.work.finish & (s.said.response == Response.DATA)


def decide(
    m: Module, config: NicConfig, recovery: Recovery, s: CompleterState, at: AtHand
) -> Signal:
    """Return the ``Decision`` on the packet or poke in hand."""
    poke, packet = Signal(Decision, name="of_poke"), Signal(Decision, name="of_packet")
    _decide_poke(m, config, recovery, poke, s)
    _decide_packet(m, packet, s)
    found, decision = Signal(Decision, name="found"), Signal(Decision)
    m.d.comb += found.eq(Mux(s.work.finish, poke, packet))
    cause, verdict = found.loss.cause, recovery.judge(m, found.loss, found.acknowledged, at)
    m.d.comb += [
        decision.eq(found),
        decision.verdict.eq(verdict),
        # Counted only when the policy takes notice: once for each gap.
        decision.events.implied_nak_seq_err.eq(verdict.heeded & (cause == Cause.IMPLIED)),
        decision.events.req_rnr_retries_exceeded.eq(verdict.gives_up & (cause == Cause.RNR)),
        decision.events.req_transport_retries_exceeded.eq(verdict.gives_up & (cause != Cause.RNR)),
    ]
    with m.If(verdict.gives_up):
        m.d.comb += [decision.fails.eq(1), decision.status.eq(verdict.status)]
    return decision


def _decide_poke(
    m: Module, config: NicConfig, recovery: Recovery, decision: Decision, s: CompleterState
) -> None:
    """A poke finishes the oldest WQE if that needs no packet: it failed, its QP is in error, or it
    has been sent and nothing will answer. Or it says that the QP's timer has run out.

    What had been handed over behind a WQE that failed may have been sent: it is flushed (IBTA vol
    1, 10.8.3)."""
    work, ack, oldest, facts, entry = s.work, s.ack, s.oldest, s.facts, s.oldest.entry
    # Behind an error the row may be ahead: an answer that was undone had moved it on.
    # A MEMCPY has no packets, so this is true of it when those before it are.
    unsent = ~entry.data | is_copy(config, entry.completion)
    acknowledged = facts.acknowledged & unsent & ~work.in_error
    with m.If(work.timeout):
        with m.If(work.in_error | (ack.status != 0)):
            pass  # what is outstanding is flushed
        with m.Elif(recovery.pauses(ack)):
            _lose(m, decision, Cause.PAUSE_OVER)
        # Else all that has left is answered: the timer starts when the next packet leaves.
        with m.Elif(oldest.valid & (entry.status == 0) & ~acknowledged & facts.awaited):
            m.d.comb += decision.events.local_ack_timeout_err.eq(1)
            _lose(m, decision, Cause.TIMEOUT)
    with m.Elif(oldest.valid & entry.complete):
        m.d.comb += decision.finish.eq(1)
        with m.If(ack.status != 0):
            m.d.comb += decision.status.eq(ack.status)
        with m.Elif(entry.status != 0):
            m.d.comb += decision.status.eq(entry.status)
        with m.Elif(unanswered(config, work.cfg.type) & ~ack.error):
            m.d.comb += [
                decision.status.eq(WcStatus.SUCCESS),
                decision.more.eq(s.sent != MOST_SENT),
            ]
        with m.Elif(acknowledged):
            m.d.comb += decision.status.eq(WcStatus.SUCCESS)
        with m.Elif(work.in_error):
            m.d.comb += decision.status.eq(WcStatus.WR_FLUSH_ERR)
        with m.Else():
            m.d.comb += decision.finish.eq(0)


def _decide_packet(m: Module, decision: Decision, s: CompleterState) -> None:
    """The table of docs/receive.md (IBTA vol 1, 9.7.5.2, 9.7.6)."""
    oldest, said, facts = s.oldest, s.said, s.facts
    entry, events = oldest.entry, decision.events
    is_ack, data_now = said.response == Response.ACK, said.response == Response.DATA
    reached = facts.past | (facts.at_last & is_ack)  # everything of the WQE is acknowledged

    with m.If(said.response == Response.INVALID):
        m.d.comb += events.unexpected_response.eq(1)
    with m.Elif(~oldest.valid | facts.behind):
        # An ACK that says nothing new is no error: duplicates are answered with one.
        m.d.comb += events.unexpected_response.eq(~(is_ack & facts.behind))
    with m.Elif(facts.ghost):
        m.d.comb += events.unexpected_response.eq(1)  # from another connection, or an enemy
    with m.Elif(entry.status != 0):
        m.d.comb += [
            decision.poke.eq(ReceiveFlags.FINISH),  # failed here, and now the oldest
            events.unexpected_response.eq(data_now),
        ]
    with m.Elif(~entry.data & reached & entry.complete):
        m.d.comb += [
            decision.finish.eq(1),
            decision.status.eq(WcStatus.SUCCESS),
            decision.more.eq(facts.past),
        ]
    with m.Elif(facts.past | (data_now & ~(entry.data & entry.complete))):
        with m.If(entry.data & entry.complete):
            _lose(m, decision, Cause.IMPLIED)  # READ responses are missing
        with m.Else():
            m.d.comb += events.unexpected_response.eq(1)
    with m.Elif(data_now & facts.expected):
        m.d.comb += decision.place.eq(1)
    with m.Elif(data_now | (is_ack & entry.data)):
        _lose(m, decision, Cause.IMPLIED)
    with m.Elif(is_ack):
        _acknowledge(m, decision, said.next_psn)
    with m.Else():
        _decide_nak(m, decision, s)


def _decide_nak(m, decision, s):
    """A NAK for a packet of the oldest WQE; all before it is acknowledged."""
    said, events = s.said, decision.events
    fatal, rnr = said.response == Response.FATAL, said.response == Response.RNR
    with m.If(~s.oldest.entry.data & ~s.facts.expected):
        _acknowledge(m, decision, s.work.header.psn)
    with m.If(said.response == Response.SEQUENCE):
        m.d.comb += events.packet_seq_err.eq(1)
        _lose(m, decision, Cause.NAK)
    with m.If(rnr):
        _lose(m, decision, Cause.RNR)
    m.d.comb += [
        events.rnr_nak.eq(rnr),
        events.req_remote_invalid_request.eq(fatal & (said.status == WcStatus.REM_INV_REQ_ERR)),
        events.req_remote_access_errors.eq(fatal & (said.status == WcStatus.REM_ACCESS_ERR)),
        events.req_remote_operational_errors.eq(fatal & (said.status == WcStatus.REM_OP_ERR)),
        decision.fails.eq(fatal),
        decision.status.eq(said.status),
    ]


def _acknowledge(m, decision, psn):
    """All packets before ``psn`` are acknowledged."""
    m.d.comb += [decision.acknowledged.new.eq(1), decision.acknowledged.psn.eq(psn)]


def _lose(m, decision, cause):
    """Something may have to be sent again: the recovery policy judges that."""
    m.d.comb += [decision.loss.found.eq(1), decision.loss.cause.eq(cause)]


def drive_job(m: Module, s: CompleterState, job: ScatterJob) -> None:
    """Where the payload goes."""
    entry = s.oldest.entry
    m.d.comb += [
        job.kind.eq(s.kind),
        job.function.eq(s.work.cfg.function),
        job.pd.eq(s.work.cfg.pd),
        job.store.eq(Mux(entry.sink.long, LineStore.LONG_SINK, LineStore.SINK)),
        job.line.eq(entry.sink.number),
        job.num_sge.eq(entry.num_sge),
        job.offset.eq(s.offset),
        job.length.eq(Mux(s.kind == ScatterKind.NONE, 0, s.work.header.length)),
    ]


def drive_effects(m: Module, s: CompleterState, effects: Effects, queue) -> None:
    """Completion of the oldest WQE on virtqueue ``queue``."""
    cfg, entry, done = s.work.cfg, s.oldest.entry, effects.completion
    failed = s.status != WcStatus.SUCCESS
    m.d.comb += [
        effects.complete.eq(s.finish),
        effects.qp.eq(s.work.qp),
        done.emit.eq(entry.signaled | failed),
        done.cq.eq(cfg.send_cq),
        done.wr_id.eq(entry.wr_id),
        done.status.eq(s.status),
        done.opcode.eq(entry.completion),
        done.byte_len.eq(Mux(failed, 0, entry.length)),
        # For the commit stage; the driver does not look at it.
        ex(done).invalidate_rkey.eq(entry.key),
        done.qp_num.eq(cfg.qpn),
        done.src_qp.eq(cfg.dest_qpn),
        done.solicited.eq(failed),
        done.ring.eq(1),
        done.queue.eq(queue),
        done.head.eq(entry.head),
        done.function.eq(cfg.function),
    ]
