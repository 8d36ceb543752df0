"""The receiving side of requests: SEND, WRITE, READ and atomic packets, one at a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.atomics import AtomicRequest
from hdl.ports.jobs import (
    Activation,
    RecvFetched,
    RecvRequest,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_atomic_write, is_flush
from hdl.ports.rows import QpRx, ReadResource, RxMessage
from hdl.ports.shared import dc_target, written_word
from hdl.ports.sources import flushes, pieces_of
from hdl.wire.opcodes import Kind

from .dynamic import name_end
from .pieces import OpenRequest, fits, load, place, remember
from .responder_check import holds_result, request_facts, request_length
from .responder_fetched import decide_fetched, discard, is_wqe, refuse
from .responder_outcome import (
    Outcome,
    drive_effects,
    drive_events,
    drive_job,
    drive_resource,
    drive_row,
    replay_needed,
    saves,
    verdict_layout,
)
from .responder_pieces import (
    break_off,
    breaks_off,
    close,
    closes,
    drive_piece,
    drive_request,
    extra,
    gives_back,
    uses_request,
)
from .responder_search import ReadSearch
from .types import Part, Pending, ResponderWork, Syndrome, pieces_bit

__all__ = ["Responder"]


class Responder(wiring.Component):
    """Executes one request packet, or flushes one receive WQE, with the rows that come with it.

    The first packet of a SEND, and the last of a WRITE with immediate, take the next WQE of the
    QP's receive source; a SEND holds it until its last packet. A flush takes what is held, then
    what a private source still has.
    ``i`` is taken (ready) when everything has been done: the QpRx row is written, ``pending`` and a
    wish to be called again (``repoke``) are handed over. One ``job`` and one ``pending`` for each
    packet; for a flush only when there was a WQE. ``atomic``: one for each job of that kind. None
    waits for the job's check: row and ``pending`` are what a good one brings about; ``Commit`` sees
    to those that are not. Only a SEND with invalidate waits until all is ``decided``: what comes
    behind it, of any QP, must not be checked before its key has become invalid.
    Of a service without answers (UC) what is wrong is dropped and counted: the message goes no
    further, its receive WQE is held for the next one, and any beginning of a message is accepted.
    A datagram (UD) is a message, whatever its PSN; one that is too long for its receive WQE is
    dropped. Its payload begins with the GRH area.
    A source may have WQEs that take several packets (MP WR, ``pieces``). Then each packet takes
    segments of the source's open WQE, and completes; a QP holds none. A packet that does not fit
    has the open one given back in a record of its own, and so has a UC message that breaks off
    behind its first packet. ``requests``: the open WQEs.
    Spec: IBTA vol 1, 9.7.4 (order of checks), 9.7.5 (responses), 9.7.5.2.8 (RNR NAK), 9.8.2.2 (UC),
    and what Linux does where the text leaves it open: a duplicate is acknowledged at once, a
    receive buffer that is too small is NAK 63h, a QP without the permission NAK 61h.
    Latency: 2 cycles, 3 more with a receive WQE and the wait for the fetch; a duplicate READ 8 more
    and one for each resource held. Throughput: one packet at a time; ``i`` has its payload a cycle
    before it is valid.
    Errors: all answers are in ``pending.events``; a QP that fails here gets ``error`` in its row.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(ResponderWork)),
                "job": Out(stream.Signature(ScatterJob)),
                "pending": Out(stream.Signature(Pending)),
                "fetch_req": Out(stream.Signature(RecvRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "repoke": Out(stream.Signature(Activation)),
                "rx_write": Out(TableWrite(QpNumber, QpRx)),
                "resource_read": Out(TableRead(16, ReadResource)),
                "resource_write": Out(TableWrite(16, ReadResource)),
                "decided": In(1),
                "atomic": Out(stream.Signature(AtomicRequest, always_ready=True)),
            }
            | (
                {
                    "request_read": Out(TableRead(QpNumber, OpenRequest)),
                    "request_write": Out(TableWrite(QpNumber, OpenRequest)),
                }
                if config.mp_wr
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.search = search = ReadSearch()
        wiring.connect(m, search.resource, wiring.flipped(self.resource_read))
        work = self.i.payload
        verdict = Signal(verdict_layout(self._config), reset_less=True)
        outcome, fetched = verdict.outcome, verdict.fetched
        facts_now = request_facts(m, self._config, work)
        holds = (work.rx.message == RxMessage.SEND) | work.rx.held  # a receive WQE
        if self._config.mp_wr:
            holds &= ~pieces_of(self._config, work.cfg).on
        updating, asking = Signal(), Signal()
        placed, recorded = Signal(), Signal()  # the job, and the record, have been taken before
        job_gone, record_gone = placed | self.job.ready, recorded | self.pending.ready
        m.d.comb += self.fetch_req.valid.eq(asking)  # a register: its taker looks up much at once
        with m.If(self.fetch_req.ready):
            m.d.sync += asking.eq(0)
        with m.FSM(name="responder"):
            # IDLE: decides by the packet's facts as far as they go; ends when there is work.
            with m.State("IDLE"):
                m.d.sync += [
                    verdict.facts.eq(facts_now),
                    verdict.taken.eq(0),
                    verdict.consume.eq(0),
                    verdict.replays.eq(0),
                    verdict.status.eq(WcStatus.SUCCESS),
                    outcome.eq(Outcome.ACCEPT),
                    verdict.kind.eq(discard(work)),
                ]
                self._begin(m, work, verdict, holds, asking)
            if self._config.mp_wr:
                self._place(m, work, verdict, asking)
            # SEARCH: asks for the saved READ that a duplicate is a part of; ends when that begins.
            with m.State("SEARCH"):
                m.d.comb += search.i.valid.eq(1)
                with m.If(search.i.ready):
                    m.next = "FOUND"
            # FOUND: waits for the search; ends with its answer.
            with m.State("FOUND"):
                m.d.comb += search.o.ready.eq(1)
                m.d.sync += [
                    verdict.replay.eq(search.o.payload.number),
                    verdict.skip.eq(search.o.payload.skip),
                    outcome.eq(Mux(search.o.payload.found, Outcome.REPLAY, Outcome.LOST)),
                ]
                with m.If(search.o.valid & search.o.payload.found):
                    m.next = "REPLAY"
                with m.Elif(search.o.valid):
                    m.next = "JOB"
                    if self._config.placement:
                        with m.If(verdict.facts.places & ~verdict.facts.crowded):
                            m.d.sync += outcome.eq(Outcome.ANEW)
            # REPLAY: compares with what the replier is going to answer anyway; ends by itself.
            with m.State("REPLAY"):
                m.d.sync += verdict.replays.eq(replay_needed(m, work, verdict))
                m.next = "JOB"
            # FETCH: waits for the receive WQE, which ``asking`` asks for; ends when it comes.
            with m.State("FETCH"):
                m.d.comb += self.fetch_rsp.ready.eq(1)
                m.d.sync += fetched.eq(self.fetch_rsp.payload)
                with m.If(self.fetch_rsp.valid):
                    m.next = "EVALUATE"
                    if self._config.mp_wr:
                        m.d.sync += remember(verdict, work, self.fetch_req.payload.last)
            # EVALUATE: decides by the receive WQE; ends by itself.
            with m.State("EVALUATE"):
                m.d.sync += verdict.taken.eq(is_wqe(fetched) & ~holds)
                m.next = "JOB"
                with m.If(closes(self._config, work, verdict)):
                    m.d.sync += close(verdict)
                with m.Elif(~work.flush):
                    decide_fetched(m, self._config, work, verdict)
                with m.Else():
                    m.d.sync += [
                        outcome.eq(Outcome.FLUSH),
                        verdict.kind.eq(ScatterKind.NONE),
                        verdict.consume.eq(1),
                        verdict.status.eq(WcStatus.WR_FLUSH_ERR),
                    ]
                    with m.If(~is_wqe(fetched)):
                        m.next = "NOTHING"
            # NOTHING: there is no WQE to flush, so the flush has ended; ends by itself.
            with m.State("NOTHING"):
                m.d.comb += self.i.ready.eq(1)
                m.next = "IDLE"
            # JOB: says where the payload goes, hands over the record, and writes the speculative
            # row; ends when scatter and commit stage have both taken theirs.
            with m.State("JOB"):
                m.d.comb += [self.job.valid.eq(~placed), self.pending.valid.eq(~recorded)]
                m.d.comb += updating.eq(self.pending.valid & self.pending.ready)
                m.d.sync += [placed.eq(job_gone), recorded.eq(record_gone)]
                with m.If(job_gone & record_gone):
                    m.d.sync += [placed.eq(0), recorded.eq(0)]
                    with m.If((outcome == Outcome.FAIL) | (outcome == Outcome.FLUSH)):
                        m.next = "REPOKE"
                    with m.Elif(self.pending.payload.invalidate):
                        m.next = "INVALIDATE"
                    with m.Elif(extra(self._config, work, verdict)):
                        self._go_on(m, work, verdict)
                    with m.Else():
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "IDLE"
            # INVALIDATE: the packet's key becomes invalid; ends when the commit stage is done.
            with m.State("INVALIDATE"):
                with m.If(self.decided):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"
            # REPOKE: asks to be called again, to flush what is left; ends when that is noted.
            with m.State("REPOKE"):
                m.d.comb += self.repoke.valid.eq(1)
                with m.If(self.repoke.ready):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"
        self._ask(m, work, search.i.payload, verdict)
        self._hand_over(m, work, verdict, updating)
        return m

    def _begin(self, m, work, verdict, holds, asking):
        """What is done with the work at hand, once there is some."""
        if self._config.mp_wr:
            row = self.request_read.row
            m.d.sync += load(m, self._config, verdict.piece, work, row)
        with m.If(~self.i.valid):
            if self._config.mp_wr:
                m.d.sync += verdict.piece.told.eq(0)
        if self._config.mp_wr:
            with m.Elif(work.flush & pieces_of(self._config, work.cfg).on):
                m.next = "PLACE"
            with m.Elif(breaks_off(self._config, work, verdict) & work.operation.first):
                m.d.sync += break_off(verdict)
                m.next = "JOB"
        with m.Elif(work.flush & ~holds & ~flushes(work.cfg.source)):
            m.next = "NOTHING"  # the others that take from the source need its WQEs
        if self._config.xrc:
            with m.Elif(work.flush & work.lost):
                # Its receive queue has been destroyed, and what is held of that with it.
                m.d.sync += [verdict.outcome.eq(Outcome.FLUSH), verdict.kind.eq(ScatterKind.NONE)]
                m.next = "JOB"
        with m.Elif(work.flush):
            m.d.sync += asking.eq(1)
            m.next = "FETCH"
        with m.Else():
            m.next = "JOB"
            self._decide(m, work, verdict, asking)

    def _decide(self, m, work, verdict, asking):
        """What becomes of a packet, as far as it shows by itself (IBTA vol 1, 9.7.4.1)."""
        header, operation, facts = work.header, work.operation, verdict.facts
        inner = (operation.kind == Kind.WRITE) & ~operation.first & ~operation.last
        with m.If(facts.behind & operation.data & operation.built):
            m.next = "SEARCH"
        with m.Elif(facts.behind):
            m.d.sync += verdict.outcome.eq(Mux(operation.data, Outcome.LOST, Outcome.DUPLICATE))
        with m.Elif(facts.ahead):
            m.d.sync += verdict.outcome.eq(Outcome.GAP)
        if self._config.xrc:
            with m.Elif(facts.lost):
                m.d.sync += refuse(work, verdict, Syndrome.REMOTE_ACCESS)
        with m.Elif(facts.invalid | (facts.exceeds & inner)):
            m.d.sync += refuse(work, verdict, Syndrome.INVALID_REQUEST)
        if self._config.placement:
            with m.Elif(facts.crowded):
                m.d.sync += verdict.outcome.eq(Outcome.CROWDED)
        with m.Elif(facts.read_full):
            m.d.sync += verdict.outcome.eq(Outcome.GAP)  # it is sent again, when numbers are free
        if self._config.mp_wr:
            with m.Elif(operation.receive & pieces_of(self._config, work.cfg).on):
                m.next = "PLACE"
        with m.Elif(operation.receive):
            m.d.sync += asking.eq(1)
            m.next = "FETCH"
        if self._config.placement:
            with m.Elif(is_flush(self._config, operation)):
                m.d.sync += verdict.kind.eq(ScatterKind.FLUSH)
            with m.Elif(is_atomic_write(self._config, operation)):
                m.d.sync += verdict.kind.eq(ScatterKind.ATOMIC_WRITE)
        with m.Elif(operation.kind == Kind.READ):
            m.d.sync += verdict.kind.eq(
                Mux(header.dma_length == 0, ScatterKind.NONE, ScatterKind.CHECK_READ)
            )
        with m.Elif(operation.kind == Kind.ATOMIC):
            m.d.sync += verdict.kind.eq(ScatterKind.ATOMIC)
        with m.Else():
            m.d.sync += verdict.kind.eq(Mux(header.length == 0, ScatterKind.NONE, ScatterKind.KEY))

    def _place(self, m, work, verdict, asking):
        """Where in the WQEs of its source a packet lies."""
        piece = verdict.piece
        bad = work.rx.error & (work.rx.syndrome == Syndrome.REMOTE_OPERATIONAL)
        # PLACE: works out what the packet takes of the open WQE, or of the next one; one cycle.
        # A flush takes the open WQE of a private source, and then the others, and that of a shared
        # one only if it is bad.
        with m.State("PLACE"):
            m.d.sync += place(self._config, work, piece)
            m.next = "FETCH"
            with m.If(~work.flush & piece.at_hand & fits(piece)):
                m.next = "EVALUATE"  # the line of the last answer stays until the next request
            with m.Elif(~work.flush | flushes(work.cfg.source) | (piece.open & bad)):
                m.d.sync += asking.eq(1)
            with m.Elif(work.rx.message == RxMessage.SEND):
                m.d.sync += [
                    verdict.outcome.eq(Outcome.FLUSH),
                    verdict.kind.eq(ScatterKind.NONE),
                ]
                m.next = "JOB"
            with m.Else():
                m.next = "NOTHING"

    def _go_on(self, m, work, verdict):
        """A record has been handed over that is in front of the packet's own."""
        if not self._config.mp_wr:
            return
        piece = verdict.piece
        m.d.sync += [
            verdict.consume.eq(0),
            verdict.kind.eq(discard(work)),
            verdict.outcome.eq(Outcome.ACCEPT),
        ]
        m.next = "PLACE"
        with m.If(verdict.outcome == Outcome.BREAK):
            m.d.sync += piece.told.eq(1)
            m.next = "IDLE"
        with m.Else():
            m.d.sync += [piece.open.eq(0), piece.left.eq(pieces_of(self._config, work.cfg).size)]

    def _ask(self, m, work, search, verdict):
        """What is asked of the search, of the receive queue, and of the activation list."""
        header, cfg, rx, fetch = work.header, work.cfg, work.rx, self.fetch_req.payload
        outcome = verdict.outcome
        both = ReceiveFlags.FLUSH | ReceiveFlags.FINISH
        m.d.comb += [
            search.psn.eq(header.psn),
            search.va.eq(header.va),
            search.rkey.eq(header.rkey),
            search.length.eq(request_length(self._config, work)),
            search.atomic.eq(holds_result(self._config, work.operation)),
            search.path_mtu.eq(cfg.path_mtu),
            search.base.eq(cfg.read_base),
            search.slots.eq(cfg.max_dest_rd_atomic),
            search.tail.eq(rx.read_tail),
            search.held.eq(Mux(rx.read_wrapped, cfg.max_dest_rd_atomic, rx.read_tail)),
            fetch.function.eq(cfg.function),
            fetch.qp.eq(work.qp),
            fetch.again.eq((rx.message == RxMessage.SEND) | rx.held),
            fetch.source.eq(cfg.source),
            fetch.head.eq(rx.head),
            fetch.last.eq(work.flush | work.operation.last),
            self.repoke.payload.qp.eq(work.qp),
            self.repoke.payload.flags.eq(Mux(outcome == Outcome.FLUSH, ReceiveFlags.FLUSH, both)),
        ]
        if self._config.mp_wr:
            piece = verdict.piece
            m.d.comb += [
                self.request_read.index.eq(cfg.source.number),
                self.request_read.enable.eq(1),
            ]
            with m.If(pieces_of(self._config, cfg).on):
                m.d.comb += [
                    fetch.again.eq(piece.open),
                    fetch.head.eq(piece.head),
                    fetch.last.eq(work.flush | piece.closes | piece.ends),
                ]

    def _hand_over(self, m, work, verdict, updating):
        """Job, record, rows and resource that follow from the verdict."""
        cfg, outcome = work.cfg, verdict.outcome
        pending, atomic = self.pending.payload, self.atomic.payload
        changes = (outcome != Outcome.DUPLICATE) & (outcome != Outcome.LOST)
        front = extra(self._config, work, verdict)
        changes &= ~front
        executes = verdict.kind == ScatterKind.ATOMIC
        if self._config.placement:
            executes |= (verdict.kind == ScatterKind.ATOMIC_WRITE) | (
                verdict.kind == ScatterKind.FLUSH
            )
        m.d.comb += [
            self.rx_write.index.eq(work.qp),
            self.rx_write.enable.eq(updating & changes),
            self.resource_write.index.eq(verdict.facts.resource),
            self.resource_write.enable.eq(updating & saves(work, verdict)),
            atomic.compares.eq(work.operation.compares),
            atomic.swap_add.eq(work.header.swap_add),
            atomic.compare.eq(work.header.compare),
            atomic.resource.eq(self.resource_write.index),
            self.atomic.valid.eq(updating & executes),
            pending.qp.eq(work.qp),
            pending.part.eq(Part.RESPONDER),
            pending.packet.eq(~work.flush & ~front),
            pending.line.eq(verdict.kind == ScatterKind.LINE),
            pending.silent.eq(verdict.facts.silent),
            pending.send.eq(work.operation.kind == Kind.SEND),
            pending.taken.eq(verdict.taken),
            pending.commit.eq(changes),
            pending.row.eq(self.rx_write.row),
        ]
        if self._config.placement:
            with m.If(verdict.kind == ScatterKind.ATOMIC_WRITE):
                m.d.comb += atomic.swap_add.eq(written_word(work.header))
        if self._config.fast_registration:
            m.d.comb += [
                pending.invalidate.eq(work.operation.invalidate & (outcome == Outcome.ACCEPT)),
                pending.pd.eq(cfg.pd),
            ]
        drive_job(m, self._config, work, verdict, self.job.payload)
        if self._config.srq:
            with m.If(pending.line):
                m.d.comb += self.job.payload.pd.eq(cfg.recv_pd)
        drive_effects(m, work, verdict, self.resource_write.index, pending.effects)
        name_end(m, self._config, cfg, pending.effects.completion, dc_target(cfg))
        if self._config.mp_wr:
            with m.If(pieces_of(self._config, cfg).on):
                m.d.comb += [
                    pieces_bit(pending).eq(outcome != Outcome.FLUSH),
                    pending.taken.eq(gives_back(verdict)),
                ]
            drive_piece(m, self._config, work, verdict, pending.effects)
            drive_request(m, self._config, work, verdict, self.request_write)
            m.d.comb += self.request_write.enable.eq(
                updating & uses_request(self._config, work, verdict)
            )
        drive_row(m, self._config, work, verdict, self.rx_write.row)
        drive_resource(m, self._config, work, verdict, self.resource_write.row)
        drive_events(m, work, verdict, pending.events)
