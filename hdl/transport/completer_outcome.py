"""What becomes of the oldest outstanding WQE when a response, or a poke, looks at it.

The completer's registers, the decision, and the job and the effects that follow from it.
"""

from amaranth.hdl import Module, Mux
from amaranth.lib import data

from hdl.abi.enums import WcStatus
from hdl.config import NicConfig
from hdl.ports.jobs import Effects, Oldest, RecvFetched, ScatterJob, ScatterKind
from hdl.ports.operations import unanswered
from hdl.ports.rows import QpAck

from .completer_check import EntryFacts, Response, ResponseFacts
from .outstanding_types import Pop
from .qp_timers import TimerSet
from .receive_types import FINISH_AND_FLUSH, CompleterWork, Events, ReceiveFlags

__all__ = [
    "CompleterState",
    "Decision",
    "decide_packet",
    "decide_poke",
    "drive_effects",
    "drive_job",
    "is_data",
]


#: A QP with this ``rnr_retry`` waits for its peer as often as the peer asks.
RNR_FOREVER = 7
#: WQEs that nothing answers which one poke finishes, at most: others come in between.
MOST_SENT = 7


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
    more: 1  # the next WQE is looked at after this one
    sent: 3  # WQEs that the poke has finished
    over: 1  # the oldest WQE needs no sink any more, nor does the packet
    placed: 1  # a READ response's payload is where it belongs
    kind: ScatterKind  # of the job
    fetched: RecvFetched  # the sink
    poke: 4  # ReceiveFlags to ask for
    pop: Pop
    timer: TimerSet  # what the QP waits for next


class Decision(data.Struct):
    """The decision about one WQE; all 0: it stays as it is, and so does the QP's row."""

    finish: 1  # the WQE ends,
    status: 8  # with this status;
    more: 1  # the packet reaches beyond it: the next one has to be looked at
    place: 1  # the packet is the expected READ response of the WQE
    moved: 1  # packets before ``psn`` are acknowledged
    psn: 24
    stops: 1  # the QP stops; ``status`` is that of the WQE, which the requester still sends
    poke: 4  # ReceiveFlags to ask for
    again: 1  # the QP goes back to the oldest unacknowledged packet,
    pause: 1  # when the time is over that the peer asks for;
    resume: 1  # that time is over
    retries: 3  # then ...
    rnr_retries: 3
    events: Events


def is_data(s: CompleterState):
    """The packet is a READ response."""
    return ~s.work.finish & (s.said.response == Response.DATA)


def decide_poke(m: Module, config: NicConfig, decision: Decision, s: CompleterState) -> None:
    """A poke finishes the oldest WQE if that needs no packet: it failed, its QP is in error, or it
    has been sent and nothing will answer. Or it says that the QP's timer has run out.

    What had been handed over behind a WQE that failed may have been sent: it is flushed (IBTA vol
    1, 10.8.3)."""
    work, ack, oldest, facts, entry = s.work, s.ack, s.oldest, s.facts, s.oldest.entry
    # Behind an error the row may be ahead: an answer that was undone had moved it on.
    acknowledged = facts.acknowledged & ~entry.data & ~work.in_error
    with m.If(work.timeout):
        with m.If(work.in_error | (ack.status != 0)):
            pass  # what is outstanding is flushed
        with m.Elif(ack.waiting):
            m.d.comb += [decision.resume.eq(1), decision.rnr_retries.eq(ack.rnr_retries)]
            _go_back(m, decision, ack.retries)
        # Else all that has left is answered: the timer starts when the next packet leaves.
        with m.Elif(oldest.valid & (entry.status == 0) & ~acknowledged & facts.awaited):
            m.d.comb += decision.events.local_ack_timeout_err.eq(1)
            _retry(m, decision, s, ack.retries, ack.rnr_retries)
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


def decide_packet(m: Module, decision: Decision, s: CompleterState) -> None:
    """The table of docs/receive.md (IBTA vol 1, 9.7.5.2, 9.7.6)."""
    ack, oldest, said, facts = s.ack, s.oldest, s.said, s.facts
    entry, events = oldest.entry, decision.events
    is_ack, data_now = said.response == Response.ACK, said.response == Response.DATA
    reached = facts.past | (facts.at_last & is_ack)  # everything of the WQE is acknowledged

    def lost():
        """READ responses are missing: they are asked for again, once for each gap."""
        with m.If(~ack.recovering & ~ack.waiting):
            m.d.comb += events.implied_nak_seq_err.eq(1)
            _retry(m, decision, s, ack.retries, ack.rnr_retries)

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
            lost()
        with m.Else():
            m.d.comb += events.unexpected_response.eq(1)
    with m.Elif(data_now & facts.expected):
        m.d.comb += decision.place.eq(1)
    with m.Elif(data_now | (is_ack & entry.data)):
        lost()
    with m.Elif(is_ack):
        m.d.comb += [decision.moved.eq(1), decision.psn.eq(said.next_psn)]
    with m.Else():
        _decide_nak(m, decision, s)


def _decide_nak(m, decision, s):
    """A NAK for a packet of the oldest WQE; all before it is acknowledged."""
    work, ack, oldest, said = s.work, s.ack, s.oldest, s.said
    header, events, data_due = work.header, decision.events, oldest.entry.data
    fatal = said.response == Response.FATAL
    rnr = said.response == Response.RNR
    moves = ~data_due & ~s.facts.expected  # packets before this one are acknowledged
    # A second NAK for the packet that the QP has gone back to is older than that.
    news = moves | (~ack.recovering & ~ack.waiting)
    with m.If(moves):
        m.d.comb += [decision.moved.eq(1), decision.psn.eq(header.psn)]
    with m.If(said.response == Response.SEQUENCE):
        m.d.comb += events.packet_seq_err.eq(1)
        with m.If(news):
            _retry(m, decision, s, Mux(moves, 0, ack.retries), Mux(moves, 0, ack.rnr_retries))
    with m.If(rnr & (moves | ~ack.waiting)):
        used = Mux(moves, 0, ack.rnr_retries)
        with m.If((work.cfg.rnr_retry != RNR_FOREVER) & (used == work.cfg.rnr_retry)):
            m.d.comb += events.req_rnr_retries_exceeded.eq(1)
            _fail(m, decision, s, WcStatus.RNR_RETRY_EXC_ERR)
        with m.Else():
            _go_back(m, decision, Mux(moves, 0, ack.retries))
            m.d.comb += [decision.pause.eq(1), decision.rnr_retries.eq(used + (used != 7))]
    m.d.comb += [
        events.rnr_nak.eq(rnr),
        events.req_remote_invalid_request.eq(fatal & (said.status == WcStatus.REM_INV_REQ_ERR)),
        events.req_remote_access_errors.eq(fatal & (said.status == WcStatus.REM_ACCESS_ERR)),
        events.req_remote_operational_errors.eq(fatal & (said.status == WcStatus.REM_OP_ERR)),
    ]
    with m.If(fatal):
        _fail(m, decision, s, said.status)


def _fail(m, decision, s, status):
    """The oldest WQE ends in error."""
    m.d.comb += decision.status.eq(status)
    with m.If(s.oldest.entry.complete):
        m.d.comb += decision.finish.eq(1)
    with m.Else():
        # It finishes with a FINISH poke once it is complete.
        m.d.comb += [decision.stops.eq(1), decision.poke.eq(FINISH_AND_FLUSH)]


def _go_back(m, decision, retries):
    """The QP goes back to its oldest unacknowledged packet."""
    m.d.comb += [decision.again.eq(1), decision.retries.eq(retries)]


def _retry(m, decision, s, used, rnr_used):
    """The QP goes back, unless it has done so ``used`` times for the same packet, and may not any
    more: then its oldest WQE ends (IBTA vol 1, 9.9.2.1.1)."""
    with m.If(used == s.work.cfg.retry_count):
        m.d.comb += decision.events.req_transport_retries_exceeded.eq(1)
        _fail(m, decision, s, WcStatus.RETRY_EXC_ERR)
    with m.Else():
        _go_back(m, decision, used + 1)
        m.d.comb += decision.rnr_retries.eq(rnr_used)


def drive_job(m: Module, s: CompleterState, job: ScatterJob) -> None:
    """Where the payload goes."""
    m.d.comb += [
        job.kind.eq(s.kind),
        job.function.eq(s.work.cfg.function),
        job.pd.eq(s.work.cfg.pd),
        job.line.eq(s.fetched.line),
        job.num_sge.eq(s.fetched.wqe.num_sge),
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
        done.imm.eq(entry.key),  # for the commit stage; the driver does not look at it
        done.qp_num.eq(cfg.qpn),
        done.src_qp.eq(cfg.dest_qpn),
        done.solicited.eq(failed),
        done.ring.eq(1),
        done.queue.eq(queue),
        done.head.eq(entry.head),
        done.function.eq(cfg.function),
    ]
