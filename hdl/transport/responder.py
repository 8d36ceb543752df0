"""The receiving side of RC requests: SEND, WRITE and READ packets, one at a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.config import NicConfig
from hdl.ports.jobs import (
    Activation,
    FetchRequest,
    FetchStatus,
    RecvFetched,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.rows import QpRx, ReadResource
from hdl.ports.tables import TableRead, TableWrite
from hdl.wire.opcodes import Kind

from .receive_types import Part, Pending, ReceiveFlags, ResponderWork, Syndrome
from .responder_check import request_facts
from .responder_outcome import (
    Outcome,
    Verdict,
    drive_effects,
    drive_events,
    drive_job,
    drive_resource,
    drive_row,
    replay_needed,
)
from .responder_search import ReadSearch

__all__ = ["Responder"]


class Responder(wiring.Component):
    """Executes one request packet, or flushes one receive WQE, with the rows that come with it.

    ``i`` is taken (ready) when everything has been done: the QpRx row is written, ``pending`` and a
    wish to be called again (``repoke``) are handed over. One ``job`` and one ``pending`` for each
    packet; for a flush only when there was a WQE. Neither waits for the job's check: row and
    ``pending`` are what a good one brings about; ``Settle`` sees to those that are not.
    Spec: IBTA vol 1, 9.7.4 (order of checks), 9.7.5 (responses), 9.7.5.2.8 (RNR NAK), and what
    Linux does where the text leaves it open: a duplicate is acknowledged at once, a receive buffer
    that is too small is NAK 63h, a QP without the permission NAK 61h.
    Latency: 3 cycles, 3 more with a receive WQE and the wait for the fetch; a duplicate READ 8 more
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
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(RecvFetched)),
                "repoke": Out(stream.Signature(Activation)),
                "rx_write": Out(TableWrite(14, QpRx)),
                "resource_read": Out(TableRead(16, ReadResource)),
                "resource_write": Out(TableWrite(16, ReadResource)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.search = search = ReadSearch()
        wiring.connect(m, search.resource, wiring.flipped(self.resource_read))
        work = self.i.payload
        header, cfg, rx, operation = work.header, work.cfg, work.rx, work.operation

        now = request_facts(m, work)
        sends = operation.kind == Kind.SEND
        verdict = Signal(Verdict, reset_less=True)
        facts, outcome, kind, fetched = (
            verdict.facts,
            verdict.outcome,
            verdict.kind,
            verdict.fetched,
        )
        status, syndrome, consume = verdict.status, verdict.syndrome, verdict.consume
        discard = Mux(header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)

        def fail(code):
            return [outcome.eq(Outcome.FAIL), syndrome.eq(code), kind.eq(discard)]

        updating, asking = Signal(), Signal()
        m.d.comb += self.fetch_req.valid.eq(asking)  # a register: its taker looks up much at once
        with m.If(self.fetch_req.ready):
            m.d.sync += asking.eq(0)
        with m.FSM(name="responder"):
            with m.State("IDLE"):
                m.d.sync += [
                    facts.eq(now),
                    verdict.has_fetched.eq(0),
                    consume.eq(0),
                    verdict.replays.eq(0),
                    status.eq(WcStatus.SUCCESS),
                    outcome.eq(Outcome.ACCEPT),
                    kind.eq(discard),
                ]
                with m.If(~self.i.valid):
                    pass
                with m.Elif(work.flush):
                    m.d.sync += asking.eq(1)
                    m.next = "FETCH"
                with m.Else():
                    m.next = "JOB"
                    self._decide(m, work, verdict, fail, asking)
            with m.State("SEARCH"):
                m.d.comb += search.i.valid.eq(1)
                with m.If(search.i.ready):
                    m.next = "FOUND"
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
            with m.State("REPLAY"):
                m.d.sync += verdict.replays.eq(replay_needed(m, work, verdict))
                m.next = "JOB"

            with m.State("FETCH"):
                with m.If(self.fetch_req.ready):
                    m.next = "FETCHED"
            with m.State("FETCHED"):
                m.d.comb += self.fetch_rsp.ready.eq(1)
                m.d.sync += fetched.eq(self.fetch_rsp.payload)
                with m.If(self.fetch_rsp.valid):
                    m.next = "EVALUATE"
            with m.State("EVALUATE"):
                m.d.sync += verdict.has_fetched.eq(
                    (fetched.status == FetchStatus.OK) | (fetched.status == FetchStatus.WQE_ERROR)
                )
                m.next = "JOB"
                with m.If(work.flush):
                    m.d.sync += [
                        outcome.eq(Outcome.FLUSH),
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
                            with m.If(sends & (facts.after > fetched.wqe.length)):
                                m.d.sync += [
                                    *fail(Syndrome.REMOTE_OPERATIONAL),
                                    consume.eq(1),
                                    status.eq(WcStatus.LOC_LEN_ERR),
                                ]
                            with m.Else():
                                m.d.sync += [
                                    consume.eq(operation.last),
                                    kind.eq(Mux(sends, ScatterKind.LINE, ScatterKind.KEY)),
                                ]
                                with m.If(header.length == 0):
                                    m.d.sync += kind.eq(ScatterKind.NONE)
                        with m.Case(FetchStatus.EMPTY):
                            m.d.sync += outcome.eq(Outcome.RNR)
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
                    m.next = "UPDATE"
            with m.State("UPDATE"):
                m.d.comb += self.pending.valid.eq(1)
                with m.If(self.pending.ready):
                    m.d.comb += updating.eq(1)
                    with m.If((outcome == Outcome.FAIL) | (outcome == Outcome.FLUSH)):
                        m.next = "REPOKE"
                    with m.Else():
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "IDLE"
            with m.State("REPOKE"):
                m.d.comb += self.repoke.valid.eq(1)
                with m.If(self.repoke.ready):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"

        changes = (outcome != Outcome.DUPLICATE) & (outcome != Outcome.LOST)
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
            self.fetch_req.payload.last.eq(work.flush | operation.last),
            self.repoke.payload.qp.eq(work.qp),
            self.repoke.payload.flags.eq(
                Mux(
                    outcome == Outcome.FLUSH,
                    ReceiveFlags.FLUSH,
                    ReceiveFlags.FLUSH | ReceiveFlags.FINISH,
                )
            ),
        ]
        m.d.comb += [
            self.rx_write.index.eq(work.qp),
            self.rx_write.enable.eq(updating & changes),
            self.resource_write.index.eq(
                cfg.read_base + (rx.read_tail & (cfg.max_dest_rd_atomic - 1))
            ),
            self.resource_write.enable.eq(updating & (outcome == Outcome.ACCEPT) & operation.data),
        ]
        pending = self.pending.payload
        m.d.comb += [
            pending.qp.eq(work.qp),
            pending.part.eq(Part.RESPONDER),
            pending.packet.eq(~work.flush),
            pending.line.eq(kind == ScatterKind.LINE),
            pending.send.eq(sends),
            pending.commit.eq(changes),
            pending.row.eq(self.rx_write.row),
        ]
        drive_job(m, work, verdict, self.job.payload)
        drive_effects(m, work, verdict, pending.effects, receive_queue)
        drive_row(m, work, verdict, self.rx_write.row)
        drive_resource(m, work, self.resource_write.row)
        drive_events(m, work, verdict, pending.events)
        return m

    def _decide(self, m, work, verdict, fail, asking):
        """What becomes of a packet, as far as it shows by itself."""
        facts, outcome, kind = verdict.facts, verdict.outcome, verdict.kind
        header, operation = work.header, work.operation
        inner = (operation.kind == Kind.WRITE) & ~operation.first & ~operation.last
        with m.If(facts.behind & operation.data & operation.built):
            m.next = "SEARCH"
        with m.Elif(facts.behind):
            m.d.sync += outcome.eq(Mux(operation.data, Outcome.LOST, Outcome.DUPLICATE))
        with m.Elif(facts.ahead):
            m.d.sync += outcome.eq(Outcome.GAP)
        with m.Elif(facts.invalid | (facts.exceeds & inner)):
            m.d.sync += fail(Syndrome.INVALID_REQUEST)
        with m.Elif(facts.read_full):
            m.d.sync += outcome.eq(Outcome.GAP)  # it will be sent again, after the replay
        with m.Elif(operation.receive):
            m.d.sync += asking.eq(1)
            m.next = "FETCH"  # it needs a receive WQE
        with m.Elif(operation.kind == Kind.READ):
            m.d.sync += kind.eq(
                Mux(header.dma_length == 0, ScatterKind.NONE, ScatterKind.CHECK_READ)
            )
        with m.Else():
            m.d.sync += kind.eq(Mux(header.length == 0, ScatterKind.NONE, ScatterKind.KEY))
