"""The receiving side of RC requests: SEND, WRITE and READ packets, one at a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from hdl.config import NicConfig
from hdl.ports.jobs import (
    Activation,
    Effects,
    FetchRequest,
    FetchStatus,
    RecvFetched,
    ScatterChecked,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.rows import QpRx, ReadResource, RxMessage
from hdl.ports.tables import TableRead, TableWrite

from .receive_types import Events, ReceiveFlags, ResponderWork, Syndrome
from .responder_check import RequestFacts, request_facts
from .responder_search import ReadSearch

__all__ = ["Responder"]


class _Outcome(enum.Enum, shape=3):
    """What becomes of the packet."""

    ACCEPT = 0
    DUPLICATE = 1  # acknowledge again
    REPLAY = 2  # answer a READ again
    LOST = 3  # drop without a word
    GAP = 4  # NAK 60h, once
    RNR = 5
    FAIL = 6  # NAK with ``syndrome``, the QP stops
    FLUSH = 7  # no packet: one receive WQE is flushed


class Responder(wiring.Component):
    """Executes one request packet, or flushes one receive WQE, with the rows that come with it.

    ``i`` is taken (ready) when everything has been done: the QpRx row is written, the packet's
    ``effects`` and a wish to be called again (``repoke``) are handed over. One ``job`` and one
    ``effects`` for each packet; for a flush only when there was a WQE.
    Spec: IBTA vol 1, 9.7.4 (order of checks), 9.7.5 (responses), 9.7.5.2.8 (RNR NAK), and what
    Linux does where the text leaves it open: a duplicate is acknowledged at once, a receive buffer
    that is too small is NAK 63h, a QP without the permission NAK 61h.
    Latency: 6 cycles, 3 more with a receive WQE, and the waits for fetch and check; a duplicate
    READ 8 more and one for each resource held. Throughput: one packet at a time.
    Errors: all answers are in ``events``; a QP that fails here gets ``error`` in its row.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(ResponderWork)),
                "job": Out(stream.Signature(ScatterJob)),
                "checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "repoke": Out(stream.Signature(Activation)),
                "rx_write": Out(TableWrite(14, QpRx)),
                "resource_read": Out(TableRead(16, ReadResource)),
                "resource_write": Out(TableWrite(16, ReadResource)),
                "events": Out(Events),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.search = search = ReadSearch()
        wiring.connect(m, search.resource, wiring.flipped(self.resource_read))
        work = self.i.payload
        header, cfg, rx = work.header, work.cfg, work.rx

        now = request_facts(m, work)
        facts = Signal(RequestFacts, reset_less=True)
        outcome = Signal(_Outcome)
        kind = Signal(ScatterKind)
        syndrome, status = Signal(8, reset_less=True), Signal(8, reset_less=True)
        consume = Signal()  # the receive WQE is finished
        fetched = Signal(RecvFetched, reset_less=True)
        has_fetched = Signal()
        replay, skip = Signal(8, reset_less=True), Signal(24, reset_less=True)
        replays = Signal()  # the replay row fields change
        needs_wqe = facts.send | (facts.immediate & facts.last)
        discard = Mux(header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)

        def fail(code):
            return [outcome.eq(_Outcome.FAIL), syndrome.eq(code), kind.eq(discard)]

        with m.FSM(name="responder") as fsm:
            with m.State("IDLE"):
                m.d.sync += [
                    facts.eq(now),
                    has_fetched.eq(0),
                    consume.eq(0),
                    replays.eq(0),
                    status.eq(WcStatus.SUCCESS),
                ]
                with m.If(self.i.valid):
                    m.next = "DECIDE"
                with m.If(self.i.valid & work.flush):
                    m.next = "FETCH"
            with m.State("DECIDE"):
                m.d.sync += [outcome.eq(_Outcome.ACCEPT), kind.eq(discard)]
                m.next = "JOB"
                with m.If(facts.behind & facts.read):
                    m.next = "SEARCH"
                with m.Elif(facts.behind):
                    m.d.sync += outcome.eq(Mux(facts.atomic, _Outcome.LOST, _Outcome.DUPLICATE))
                with m.Elif(facts.ahead):
                    m.d.sync += outcome.eq(_Outcome.GAP)
                with m.Elif(facts.invalid):
                    m.d.sync += fail(Syndrome.INVALID_REQUEST)
                with m.Elif(facts.read_full):
                    m.d.sync += outcome.eq(_Outcome.GAP)  # it will be sent again, after the replay
                with m.Elif(needs_wqe):
                    m.next = "FETCH"
                with m.Elif(facts.read):
                    m.d.sync += kind.eq(
                        Mux(header.dma_length == 0, ScatterKind.NONE, ScatterKind.CHECK_READ)
                    )
                with m.Else():
                    m.d.sync += kind.eq(Mux(header.length == 0, ScatterKind.NONE, ScatterKind.KEY))
            with m.State("SEARCH"):
                m.d.comb += search.i.valid.eq(1)
                with m.If(search.i.ready):
                    m.next = "FOUND"
            with m.State("FOUND"):
                m.d.comb += search.o.ready.eq(1)
                m.d.sync += [
                    replay.eq(search.o.payload.number),
                    skip.eq(search.o.payload.skip),
                    outcome.eq(Mux(search.o.payload.found, _Outcome.REPLAY, _Outcome.LOST)),
                ]
                with m.If(search.o.valid & search.o.payload.found):
                    m.next = "REPLAY"
                with m.Elif(search.o.valid):
                    m.next = "JOB"
            with m.State("REPLAY"):
                m.d.sync += replays.eq(self._replay_needed(m, work, replay, skip))
                m.next = "JOB"

            with m.State("FETCH"):
                m.d.comb += self.fetch_req.valid.eq(1)
                with m.If(self.fetch_req.ready):
                    m.next = "FETCHED"
            with m.State("FETCHED"):
                m.d.comb += self.fetch_rsp.ready.eq(1)
                m.d.sync += fetched.eq(self.fetch_rsp.payload)
                with m.If(self.fetch_rsp.valid):
                    m.next = "EVALUATE"
            with m.State("EVALUATE"):
                m.d.sync += has_fetched.eq(
                    (fetched.status == FetchStatus.OK) | (fetched.status == FetchStatus.WQE_ERROR)
                )
                m.next = "JOB"
                with m.If(work.flush):
                    m.d.sync += [
                        outcome.eq(_Outcome.FLUSH),
                        kind.eq(ScatterKind.NONE),
                        consume.eq(1),
                        status.eq(WcStatus.WR_FLUSH_ERR),
                    ]
                    with m.If(
                        (fetched.status == FetchStatus.EMPTY)
                        | (fetched.status == FetchStatus.QUEUE_ERROR)
                    ):
                        m.next = "NOTHING"
                with m.Else():
                    with m.Switch(fetched.status):
                        with m.Case(FetchStatus.OK):
                            with m.If(facts.send & (facts.after > fetched.wqe.length)):
                                m.d.sync += [
                                    *fail(Syndrome.REMOTE_OPERATIONAL),
                                    consume.eq(1),
                                    status.eq(WcStatus.LOC_LEN_ERR),
                                ]
                            with m.Else():
                                m.d.sync += [
                                    consume.eq(facts.last),
                                    kind.eq(Mux(facts.send, ScatterKind.LINE, ScatterKind.KEY)),
                                ]
                                with m.If(header.length == 0):
                                    m.d.sync += kind.eq(ScatterKind.NONE)
                        with m.Case(FetchStatus.EMPTY):
                            m.d.sync += outcome.eq(_Outcome.RNR)
                            m.d.sync += syndrome.eq(Syndrome.RNR_NAK | cfg.min_rnr_timer)
                        with m.Case(FetchStatus.WQE_ERROR):
                            m.d.sync += [
                                *fail(Syndrome.REMOTE_OPERATIONAL),
                                consume.eq(1),
                                status.eq(fetched.error),
                            ]
                        with m.Case(FetchStatus.QUEUE_ERROR):
                            m.d.sync += fail(Syndrome.REMOTE_OPERATIONAL)
            with m.State("NOTHING"):
                m.d.comb += self.i.ready.eq(1)
                m.next = "IDLE"

            with m.State("JOB"):
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += self.checked.ready.eq(1)
                with m.If(self.checked.valid):
                    m.next = "UPDATE"
                    with m.If((outcome == _Outcome.ACCEPT) & (self.checked.payload.status != 0)):
                        m.d.sync += outcome.eq(_Outcome.FAIL)
                        with m.If(facts.send):
                            m.d.sync += [
                                syndrome.eq(Syndrome.REMOTE_OPERATIONAL),
                                consume.eq(1),
                                status.eq(self.checked.payload.status),
                            ]
                        with m.Else():
                            m.d.sync += [syndrome.eq(Syndrome.REMOTE_ACCESS), consume.eq(0)]
            with m.State("UPDATE"):
                m.next = "EFFECTS"
            with m.State("EFFECTS"):
                m.d.comb += self.effects.valid.eq(1)
                with m.If(self.effects.ready):
                    with m.If((outcome == _Outcome.FAIL) | (outcome == _Outcome.FLUSH)):
                        m.next = "REPOKE"
                    with m.Else():
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "IDLE"
            with m.State("REPOKE"):
                m.d.comb += self.repoke.valid.eq(1)
                with m.If(self.repoke.ready):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"

        updating = fsm.ongoing("UPDATE")
        receive_queue = (work.qp << 1) + self._config.rq_queue(0)
        m.d.comb += [
            search.i.payload.psn.eq(header.psn),
            search.i.payload.va.eq(header.va),
            search.i.payload.rkey.eq(header.rkey),
            search.i.payload.length.eq(header.dma_length),
            search.i.payload.path_mtu.eq(cfg.path_mtu),
            search.i.payload.base.eq(cfg.read_base),
            search.i.payload.slots.eq(cfg.max_dest_rd_atomic),
            search.i.payload.tail.eq(rx.read_tail),
            search.i.payload.held.eq(Mux(rx.read_wrapped, cfg.max_dest_rd_atomic, rx.read_tail)),
            self.fetch_req.payload.function.eq(cfg.function),
            self.fetch_req.payload.qp.eq(work.qp),
            self.fetch_req.payload.queue.eq(receive_queue),
            self.fetch_req.payload.position.eq(rx.position),
            self.fetch_req.payload.known.eq(rx.available),
            self.repoke.payload.qp.eq(work.qp),
            self.repoke.payload.flags.eq(
                Mux(
                    outcome == _Outcome.FLUSH,
                    ReceiveFlags.FLUSH,
                    ReceiveFlags.FLUSH | ReceiveFlags.FINISH,
                )
            ),
        ]
        self._job(m, work, facts, kind, fetched)
        self._effects(m, work, facts, outcome, consume, status, fetched, replays, receive_queue)
        self._row(m, work, facts, outcome, consume, fetched, has_fetched, syndrome, updating)
        self._replay(m, work, outcome, replays, replay, skip)
        self._resource(m, work, outcome, facts, updating)
        self._events(m, work, facts, outcome, status, consume, syndrome, updating)
        return m

    def _replay_needed(self, m, work, replay, skip):
        """Whether the replier must go back: not if it comes there anyway, or goes further."""
        rx, reply = work.rx, work.reply
        back, head, asked = Signal(8), Signal(8), Signal(8)  # resources back from the newest
        pending, covered, earlier = Signal(), Signal(), Signal()
        m.d.comb += [
            back.eq(rx.read_tail - replay),
            head.eq(rx.read_tail - reply.read_head),
            asked.eq(rx.read_tail - rx.replay),
            pending.eq(rx.replay_seq != reply.replay_seq),
            covered.eq(back < head),
            earlier.eq(pending & ((asked > back) | ((asked == back) & (rx.replay_skip <= skip)))),
        ]
        return ~covered & ~earlier

    def _job(self, m, work, facts, kind, fetched):
        job, header = self.job.payload, work.header
        m.d.comb += [
            job.kind.eq(kind),
            job.function.eq(work.cfg.function),
            job.pd.eq(work.cfg.pd),
            job.line.eq(fetched.line),
            job.num_sge.eq(fetched.wqe.num_sge),
            job.offset.eq(
                Mux(kind == ScatterKind.LINE, Mux(facts.first, 0, work.rx.offset), facts.allow)
            ),
            job.length.eq(Mux(kind == ScatterKind.NONE, 0, header.length)),
            job.va.eq(facts.va),
            job.key.eq(facts.key),
        ]

    def _effects(self, m, work, facts, outcome, consume, status, fetched, replays, queue):
        effects, header, cfg = self.effects.payload, work.header, work.cfg
        done = effects.completion
        failed = status != WcStatus.SUCCESS
        accepted = outcome == _Outcome.ACCEPT
        m.d.comb += [
            effects.complete.eq(consume),
            done.emit.eq(1),
            done.cq.eq(cfg.recv_cq),
            done.wr_id.eq(fetched.wqe.wr_id),
            done.status.eq(status),
            done.opcode.eq(
                Mux(facts.write & ~work.flush, WcOpcode.RECV_RDMA_WITH_IMM, WcOpcode.RECV)
            ),
            done.byte_len.eq(Mux(failed, 0, facts.after)),
            done.imm.eq(header.imm),
            done.qp_num.eq(cfg.qpn),
            done.src_qp.eq(cfg.dest_qpn),
            done.flags.eq(Mux(facts.immediate & ~failed, WcFlags.WITH_IMM, 0)),
            done.solicited.eq(header.solicited | failed),
            done.ring.eq(1),
            done.queue.eq(queue),
            done.head.eq(fetched.head),
            done.function.eq(cfg.function),
            effects.qp.eq(work.qp),
            effects.flags.ack.eq(
                (accepted & header.ack_request & ~facts.read) | (outcome == _Outcome.DUPLICATE)
            ),
            effects.flags.nak.eq(
                (outcome == _Outcome.RNR)
                | (outcome == _Outcome.FAIL)
                | ((outcome == _Outcome.GAP) & ~work.rx.nak_sent)
            ),
            effects.flags.read.eq((accepted & facts.read) | (outcome == _Outcome.REPLAY)),
            effects.flags.replay.eq((outcome == _Outcome.REPLAY) & replays),
            effects.reply.eq(effects.flags.as_value().any()),
        ]

    def _row(self, m, work, facts, outcome, consume, fetched, has_fetched, syndrome, updating):
        header, rx, row = work.header, work.rx, self.rx_write.row
        accepted, gap = outcome == _Outcome.ACCEPT, outcome == _Outcome.GAP
        begins = accepted & facts.first & facts.write
        resource = accepted & facts.read
        slots = work.cfg.max_dest_rd_atomic
        m.d.comb += [
            self.rx_write.index.eq(work.qp),
            self.rx_write.enable.eq(
                updating & (outcome != _Outcome.DUPLICATE) & (outcome != _Outcome.LOST)
            ),
            row.psn.eq(Mux(accepted, rx.psn + facts.packets, rx.psn)),
            row.msn.eq(rx.msn + (accepted & (facts.last | facts.read))),
            row.message.eq(rx.message),
            row.position.eq(rx.position + consume),
            row.available.eq(Mux(has_fetched, fetched.available, rx.available)),
            row.offset.eq(rx.offset),
            row.va.eq(Mux(begins, header.va, rx.va)),
            row.rkey.eq(Mux(begins, header.rkey, rx.rkey)),
            row.dma_length.eq(Mux(begins, header.dma_length, rx.dma_length)),
            row.nak_sent.eq(gap | (outcome == _Outcome.RNR) | (rx.nak_sent & ~accepted)),
            row.syndrome.eq(
                Mux(
                    (outcome == _Outcome.RNR) | (outcome == _Outcome.FAIL),
                    syndrome,
                    Mux(gap & ~rx.nak_sent, Syndrome.PSN_SEQUENCE, rx.syndrome),
                )
            ),
            row.read_tail.eq(rx.read_tail + resource),
            row.read_wrapped.eq(rx.read_wrapped | (resource & (rx.read_tail + 1 == slots))),
            row.error.eq(rx.error | (outcome == _Outcome.FAIL)),
        ]
        with m.If(accepted & ~facts.read):
            m.d.comb += row.offset.eq(Mux(facts.last, 0, facts.after))
            with m.If(facts.last):
                m.d.comb += row.message.eq(RxMessage.NONE)
            with m.Elif(facts.send):
                m.d.comb += row.message.eq(RxMessage.SEND)
            with m.Else():
                m.d.comb += row.message.eq(RxMessage.WRITE)

    def _replay(self, m, work, outcome, replays, replay, skip):
        rx, row = work.rx, self.rx_write.row
        changes = (outcome == _Outcome.REPLAY) & replays
        following = Mux(rx.replay_seq == 15, 1, rx.replay_seq + 1)
        m.d.comb += [
            row.replay.eq(Mux(changes, replay, rx.replay)),
            row.replay_skip.eq(Mux(changes, skip, rx.replay_skip)),
            row.replay_seq.eq(Mux(changes, following, rx.replay_seq)),
        ]

    def _resource(self, m, work, outcome, facts, updating):
        header, cfg, rx, row = work.header, work.cfg, work.rx, self.resource_write.row
        m.d.comb += [
            self.resource_write.index.eq(
                cfg.read_base + (rx.read_tail & (cfg.max_dest_rd_atomic - 1))
            ),
            self.resource_write.enable.eq(updating & (outcome == _Outcome.ACCEPT) & facts.read),
            row.va.eq(header.va),
            row.rkey.eq(header.rkey),
            row.length.eq(header.dma_length),
            row.psn.eq(header.psn),
            row.msn.eq(rx.msn + 1),
        ]

    def _events(self, m, work, facts, outcome, status, consume, syndrome, updating):
        events = self.events
        with m.If(updating):
            with m.Switch(outcome):
                with m.Case(_Outcome.ACCEPT):
                    m.d.comb += [
                        events.rx_send_requests.eq(facts.send & facts.first),
                        events.rx_write_requests.eq(facts.write & facts.first),
                        events.rx_read_requests.eq(facts.read),
                    ]
                with m.Case(_Outcome.DUPLICATE, _Outcome.REPLAY):
                    m.d.comb += events.duplicate_request.eq(1)
                with m.Case(_Outcome.LOST):
                    m.d.comb += [
                        events.duplicate_request.eq(1),
                        events.duplicate_read_lost.eq(facts.read),
                    ]
                with m.Case(_Outcome.GAP):
                    m.d.comb += events.out_of_sequence.eq(1)
                with m.Case(_Outcome.RNR):
                    m.d.comb += events.out_of_buffer.eq(1)
                with m.Case(_Outcome.FAIL):
                    m.d.comb += [
                        events.resp_remote_invalid_request.eq(syndrome == Syndrome.INVALID_REQUEST),
                        events.resp_remote_access_errors.eq(syndrome == Syndrome.REMOTE_ACCESS),
                        events.resp_remote_operational_errors.eq(
                            syndrome == Syndrome.REMOTE_OPERATIONAL
                        ),
                        events.resp_local_length_error.eq(status == WcStatus.LOC_LEN_ERR),
                    ]
            m.d.comb += [
                events.resp_cqe_error.eq(consume & (status != WcStatus.SUCCESS)),
                events.resp_cqe_flush_error.eq(consume & (status == WcStatus.WR_FLUSH_ERR)),
            ]
