"""What follows from the responder's verdict on a packet: job, effects, rows, counters."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from hdl.common.sums import wide_sum
from hdl.config import NicConfig
from hdl.ports.jobs import Effects, RecvFetched, ScatterJob, ScatterKind
from hdl.ports.rows import QpRx, ReadResource, RxMessage
from hdl.ports.shared import flush_job, wire_flush
from hdl.ports.sources import pieces_of
from hdl.wire.opcodes import ATOMIC_BYTES, Kind

from ..recovery.segment import PSN_BLOCK
from .pieces import Piece, bytes_at
from .responder_check import RequestFacts, holds_result, request_length
from .types import Events, ResponderWork, Syndrome

__all__ = [
    "Outcome",
    "Verdict",
    "drive_effects",
    "drive_events",
    "drive_job",
    "drive_resource",
    "drive_row",
    "replay_needed",
    "saves",
    "verdict_layout",
]


class Outcome(enum.Enum, shape=4):
    """What becomes of the packet."""

    ACCEPT = 0
    DUPLICATE = 1  # acknowledge again
    REPLAY = 2  # answer a READ again
    LOST = 3  # drop without a word
    GAP = 4  # NAK 60h, once; without answers: drop
    RNR = 5  # the same
    FAIL = 6  # NAK with ``syndrome``, the QP stops
    FLUSH = 7  # no packet: one receive WQE is flushed
    DROP = 8  # without answers: what would be a NAK with ``syndrome``; the QP goes on
    CROWDED = 9  # a FLUSH or ATOMIC WRITE without a resource: drop, and no NAK for the gap
    ANEW = 10  # a duplicate of these whose resource is another's now: answer, and do nothing
    # In front of a packet whose source has WQEs that take several packets; see ``extra``.
    CLOSE = 11  # it does not fit into the open one, which goes back
    BREAK = 12  # without answers: it begins a message, and the one before it has not ended


class Verdict(data.Struct):
    """The responder's registers for the packet in hand."""

    facts: RequestFacts
    outcome: Outcome
    kind: ScatterKind  # of the job
    syndrome: 8
    status: 8  # of the receive WQE
    consume: 1  # the receive WQE is finished
    fetched: RecvFetched
    taken: 1  # it is the source's next one, which this QP has now
    replay: 8  # resource of a duplicate READ,
    skip: 24  # packets of it before the duplicate,
    replays: 1  # and the replier is to go there


def verdict_layout(config: NicConfig) -> data.Layout:
    """``Verdict``, with ``piece`` on cards with MP WR: where the packet's data lie."""
    fields = {name: field.shape for name, field in data.Layout.cast(Verdict)}
    return data.StructLayout(fields | ({"piece": Piece} if config.mp_wr else {}))


def replay_needed(m: Module, work: ResponderWork, v: Verdict):
    """Whether the replier must go back: not if it comes there anyway, or goes further."""
    rx, reply = work.rx, work.reply
    back, head, asked = Signal(8), Signal(8), Signal(8)  # resources back from the newest
    pending, covered, earlier = Signal(), Signal(), Signal()
    m.d.comb += [
        back.eq(rx.read_tail - v.replay),
        head.eq(rx.read_tail - reply.read_head),
        asked.eq(rx.read_tail - rx.replay),
        pending.eq(rx.replay_seq != reply.replay_seq),
        covered.eq(back < head),
        earlier.eq(pending & ((asked > back) | ((asked == back) & (rx.replay_skip <= v.skip)))),
    ]
    return ~covered & ~earlier


def drive_job(
    m: Module, config: NicConfig, work: ResponderWork, v: Verdict, job: ScatterJob
) -> None:
    """Where the payload goes, or what to check."""
    header = work.header
    m.d.comb += [
        job.kind.eq(v.kind),
        job.function.eq(work.cfg.function),
        job.pd.eq(work.cfg.pd),
        job.line.eq(v.fetched.line),
        job.num_sge.eq(v.fetched.wqe.num_sge),
        job.offset.eq(
            Mux(
                v.kind == ScatterKind.LINE,
                Mux(work.operation.first, 0, work.rx.offset),
                v.facts.allow,
            )
        ),
        job.length.eq(Mux(v.kind == ScatterKind.NONE, 0, header.length)),
        job.va.eq(v.facts.va),
        job.key.eq(v.facts.key),
        job.qp.eq(work.qp),
    ]
    if config.mp_wr:
        with m.If(pieces_of(config, work.cfg).on & (v.kind == ScatterKind.LINE)):
            m.d.comb += job.offset.eq(bytes_at(v.piece.at))
    with m.If(v.kind == ScatterKind.ATOMIC):
        m.d.comb += job.length.eq(ATOMIC_BYTES)  # none of them in the packet
    if config.placement:
        with m.If(v.kind == ScatterKind.FLUSH):
            asked, flush = wire_flush(header), flush_job(job)
            m.d.comb += [
                job.num_sge.eq(0),
                flush.type.eq(asked.type),
                # Of no bytes the key is checked, and nothing else of them.
                flush.whole.eq(asked.level[0] | (header.dma_length == 0)),
            ]


def saves(work: ResponderWork, v: Verdict) -> Value:
    """Whether a READ or an atomic gets a place in the pool."""
    return ((v.outcome == Outcome.ACCEPT) & work.operation.data) | (v.outcome == Outcome.ANEW)


def drive_effects(
    m: Module, work: ResponderWork, v: Verdict, place: Value, effects: Effects
) -> None:
    """Completion of the receive WQE, and the reply. ``place``: of a READ or an atomic that is
    accepted, in the pool."""
    header, cfg, operation = work.header, work.cfg, work.operation
    done = effects.completion
    failed = v.status != WcStatus.SUCCESS
    accepted = v.outcome == Outcome.ACCEPT
    m.d.comb += [
        effects.complete.eq(v.consume),
        done.emit.eq(1),
        done.cq.eq(cfg.recv_cq),
        done.wr_id.eq(v.fetched.wqe.wr_id),
        done.status.eq(v.status),
        done.opcode.eq(
            Mux(
                (operation.kind == Kind.WRITE) & ~work.flush,
                WcOpcode.RECV_RDMA_WITH_IMM,
                WcOpcode.RECV,
            )
        ),
        done.byte_len.eq(Mux(failed, 0, v.facts.after)),
        done.imm.eq(header.imm),
        done.qp_num.eq(cfg.qpn),
        done.src_qp.eq(Mux(v.facts.datagram, header.src_qp, cfg.dest_qpn)),
        done.pkey_index.eq(Mux(v.facts.datagram, header.pkey_index, 0)),
        done.sl.eq(Mux(v.facts.datagram, header.priority, 0)),
        done.flags.eq(
            Mux(operation.immediate & ~failed, WcFlags.WITH_IMM, 0)
            | Mux(operation.invalidate & ~failed, WcFlags.WITH_INV, 0)
            | Mux(v.facts.datagram & ~failed, WcFlags.GRH, 0)
        ),
        done.solicited.eq(header.solicited | failed),
        done.ring.eq(1),
        done.queue.eq(v.fetched.queue),
        done.head.eq(Mux(effects.saved, place, v.fetched.head)),
        done.function.eq(cfg.function),
        effects.qp.eq(work.qp),
        effects.saved.eq(saves(work, v)),
        effects.flags.ack.eq(
            (accepted & header.ack_request & ~operation.data & ~v.facts.silent)
            | (v.outcome == Outcome.DUPLICATE)
        ),
        effects.flags.nak.eq(
            ~v.facts.silent
            & (
                (v.outcome == Outcome.RNR)
                | (v.outcome == Outcome.FAIL)
                | ((v.outcome == Outcome.GAP) & ~work.rx.nak_sent)
            )
        ),
        effects.flags.read.eq(
            (accepted & operation.data)
            | (v.outcome == Outcome.REPLAY)
            | (v.outcome == Outcome.ANEW)
        ),
        effects.flags.replay.eq((v.outcome == Outcome.REPLAY) & v.replays),
        effects.reply.eq(effects.flags.as_value().any()),
    ]


def drive_row(m: Module, config: NicConfig, work: ResponderWork, v: Verdict, row: QpRx) -> None:
    """The QP's row after the packet."""
    header, rx, operation = work.header, work.rx, work.operation
    accepted, gap = v.outcome == Outcome.ACCEPT, v.outcome == Outcome.GAP
    begins = accepted & operation.first & (operation.kind == Kind.WRITE)
    resource = (accepted & operation.data) | (v.outcome == Outcome.ANEW)
    crowded = v.outcome == Outcome.CROWDED  # as if the gap behind it had had its NAK
    # What is accepted has the expected PSN, or sets it.
    after = wide_sum(m, header.psn, v.facts.packets, block=PSN_BLOCK)
    pieces = pieces_of(config, work.cfg).on if config.mp_wr else Const(0)  # then nothing is held
    holds, breaks = Signal(name="holds_now"), Signal()  # a receive WQE; the message goes no further
    message = Signal(RxMessage, name="message_then")
    m.d.comb += [
        holds.eq(((rx.message == RxMessage.SEND) | rx.held | v.taken) & ~pieces),
        breaks.eq(v.facts.silent & ~accepted & ~work.flush),
        row.psn.eq(Mux(accepted | breaks, after, rx.psn)),
        # Only its responses acknowledge a READ: the peer may not have got all of them.
        row.ack_psn.eq(Mux(accepted & ~operation.data, rx.psn, rx.ack_psn)),
        row.ack_msn.eq(Mux(accepted & ~operation.data, row.msn, rx.ack_msn)),
        row.msn.eq(Mux(accepted & operation.last, v.facts.msn, rx.msn)),
        message.eq(Mux(v.consume | breaks, RxMessage.NONE, rx.message)),
        row.message.eq(message),
        row.held.eq(holds & ~v.consume & (message != RxMessage.SEND)),
        row.head.eq(Mux(v.taken, v.fetched.head, rx.head)),
        row.offset.eq(rx.offset),
        row.va.eq(Mux(begins, header.va, rx.va)),
        row.rkey.eq(Mux(begins, header.rkey, rx.rkey)),
        row.dma_length.eq(Mux(begins, header.dma_length, rx.dma_length)),
        row.nak_sent.eq(gap | crowded | (v.outcome == Outcome.RNR) | (rx.nak_sent & ~accepted)),
        row.syndrome.eq(
            Mux(
                (v.outcome == Outcome.RNR) | (v.outcome == Outcome.FAIL),
                v.syndrome,
                Mux(gap & ~rx.nak_sent, Syndrome.PSN_SEQUENCE, rx.syndrome),
            )
        ),
        row.read_tail.eq(Mux(resource, rx.read_tail + 1, rx.read_tail)),
        row.read_wrapped.eq(rx.read_wrapped | (resource & v.facts.wraps)),
        row.error.eq(rx.error | (v.outcome == Outcome.FAIL)),
    ]
    if config.xrc:
        m.d.comb += row.srq.eq(Mux(accepted & operation.first, work.srq, rx.srq))
        with m.If(work.flush & work.lost):  # nothing is there any more to be held
            m.d.comb += [holds.eq(0), message.eq(RxMessage.NONE)]
    changes = (v.outcome == Outcome.REPLAY) & v.replays
    following = Mux(rx.replay_seq == 15, 1, rx.replay_seq + 1)
    m.d.comb += [
        row.replay.eq(Mux(changes, v.replay, rx.replay)),
        row.replay_skip.eq(Mux(changes, v.skip, rx.replay_skip)),
        row.replay_seq.eq(Mux(changes, following, rx.replay_seq)),
    ]
    with m.If(accepted):
        m.d.comb += row.offset.eq(Mux(operation.last, 0, v.facts.after))
        with m.If(operation.last):
            m.d.comb += message.eq(RxMessage.NONE)
        with m.Elif(operation.kind == Kind.SEND):
            m.d.comb += message.eq(RxMessage.SEND)
        with m.Else():
            m.d.comb += message.eq(RxMessage.WRITE)


def drive_resource(
    m: Module, config: NicConfig, work: ResponderWork, v: Verdict, row: ReadResource
) -> None:
    """The READ or atomic, for the replier and for duplicates."""
    header = work.header
    m.d.comb += [
        row.va.eq(header.va),
        row.rkey.eq(header.rkey),
        row.length.eq(request_length(config, work)),
        row.psn.eq(header.psn),
        row.msn.eq(Mux(v.outcome == Outcome.ANEW, work.rx.msn, v.facts.msn)),
        row.number.eq(work.rx.read_tail),
        row.atomic.eq(holds_result(config, work.operation)),
        row.single.eq(v.facts.single),
    ]
    if config.xrc:
        m.d.comb += row.pd.eq(work.cfg.pd)


def drive_events(m: Module, work: ResponderWork, v: Verdict, events: Events) -> None:
    """What to count, in the cycle in which this is called for."""
    kind, first = work.operation.kind, work.operation.first
    with m.Switch(v.outcome):
        with m.Case(Outcome.ACCEPT):
            m.d.comb += [
                events.rx_send_requests.eq((kind == Kind.SEND) & first),
                events.rx_write_requests.eq((kind == Kind.WRITE) & first),
                events.rx_read_requests.eq((kind == Kind.READ) & ~v.facts.places),
                events.out_of_sequence.eq(v.facts.skips),
            ]
        with m.Case(Outcome.DUPLICATE, Outcome.REPLAY, Outcome.ANEW):
            m.d.comb += events.duplicate_request.eq(1)
        with m.Case(Outcome.LOST):
            m.d.comb += [
                events.duplicate_request.eq(1),
                events.duplicate_read_lost.eq((kind == Kind.READ) | (kind == Kind.ATOMIC)),
            ]
        with m.Case(Outcome.GAP, Outcome.CROWDED):
            m.d.comb += events.out_of_sequence.eq(1)
        with m.Case(Outcome.RNR):
            m.d.comb += events.out_of_buffer.eq(1)
        with m.Case(Outcome.FAIL, Outcome.DROP):
            m.d.comb += [
                events.resp_remote_invalid_request.eq(v.syndrome == Syndrome.INVALID_REQUEST),
                events.resp_remote_access_errors.eq(v.syndrome == Syndrome.REMOTE_ACCESS),
                events.resp_remote_operational_errors.eq(v.syndrome == Syndrome.REMOTE_OPERATIONAL),
                events.resp_local_length_error.eq(v.status == WcStatus.LOC_LEN_ERR),
            ]
    m.d.comb += [
        events.resp_cqe_error.eq(v.consume & (v.status != WcStatus.SUCCESS)),
        events.resp_cqe_flush_error.eq(v.consume & (v.status == WcStatus.WR_FLUSH_ERR)),
    ]
