"""The sinks of READs: where the data of a READ response goes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.sums import unequal
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.jobs import (
    WQE_LINE_BITS,
    FetchRequest,
    FetchStatus,
    QueueError,
    RecvFetched,
    SinkRequest,
    SinksReported,
    WqeRead,
)
from hdl.ports.numbers import send_queue
from hdl.ports.rows import QueueRow

from ..ring.types import FastPathJob
from .lines import SinkLines, is_sink, sink_line, sinks_of
from .path import Arrival, HeldWqe, Tag
from .read_sinks import ReadSinks

__all__ = ["RecvSinks"]

#: Sinks grow older with every so many (two to the power of it) WQEs that SendFetch gives out.
SINK_AGE_BITS = 14


class RecvSinks(wiring.Component):
    """Answers requests for the send WQE of a READ, whose SGEs take the data of its responses.

    SendFetch tells of most READs as it fetches them (``reported``), and ReadSinks keeps these. Any
    other is fetched once more into one of a few lines, which queue number and position select; so
    is a receive WQE (not ``send``) that a message holds, and whose line is gone: its head is known,
    and stands for the position.

    Members: ``req``: sinks; ``away``: receive WQEs, which come only while nothing is asked for, and
    so does ``begun``: a receive WQE is given out, so what is here of an earlier one with its head
    is not valid any more. ``rsp``, ``error``: as in RecvFetch.
    ``reported``: from SendFetch. ``forget`` (a cycle): no sink is valid any more.
    ``queue_read``: the rows of the virtqueues, which answers at once. ``tag``: read port of the
    tags of lines. ``job``: a sink to fetch, ``held``: a receive WQE; ``arrived``,
    ``arrived_valid``, ``good``: what became of a fetch. ``waits`` for the line ``wanted``.
    ``fetched_line``, ``reported_line``: lines about to be written, with ``fetched_held``,
    ``reported_held``: one is being read. ``slot``, ``slot_enable``,
    ``slot_data``: of the sinks that were reported. ``at_work``: a request has not been answered.
    Latency: 4 cycles when the sink was reported, 5 when it is in its line, else three host reads
    and 50 cycles. One request at a time. A sink is forgotten when nobody has asked for it while
    SendFetch gave out 16384 to 32768 WQEs, half of those that bring a position again.
    Errors: as SendFetch; nothing is kept of a WQE in error. Reset: no sink is valid.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        line = WQE_LINE_BITS
        super().__init__(
            {
                "req": In(stream.Signature(SinkRequest)),
                "away": In(stream.Signature(HeldWqe, always_ready=True)),
                "begun": In(stream.Signature(HeldWqe, always_ready=True)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "error": Out(stream.Signature(QueueError)),
                "reported": In(SinksReported()),
                "forget": In(1),
                "queue_read": Out(TableRead(16, QueueRow)),
                "tag": Out(TableRead(line, Tag)),
                "job": Out(stream.Signature(FastPathJob)),
                "held": Out(stream.Signature(FastPathJob)),
                "arrived": In(Arrival),
                "arrived_valid": In(1),
                "good": In(1),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
            }
            | {name: Out(1) for name in ("waits", "at_work")}
            | {name: Out(line) for name in ("wanted", "fetched_line", "reported_line")}
            | {name: In(1) for name in ("fetched_held", "reported_held")}
        )

    def elaborate(self, platform):
        m = Module()
        total = self._config.recv_lines
        request = Signal(FetchRequest, reset_less=True)
        row = Signal(QueueRow, reset_less=True)
        answer, cause = Signal(RecvFetched, reset_less=True), Signal.like(self.error.payload.cause)
        m.submodules.reported = reported = ReadSinks(config=self._config)
        m.submodules.fetched = fetched = SinkLines(sinks=sinks_of(total))
        connect(m, flipped(self.reported.sink), reported.i)
        line, idle, stale = Signal(WQE_LINE_BITS), Signal(), Signal()
        receives = Signal(sinks_of(total))  # lines whose last fetch was of a receive WQE
        queue = Signal(
            16
        )  # the request's: a sink's follows from its QP in LOAD, as that takes long
        job = self.job.payload
        m.d.comb += [
            line.eq(sink_line(queue, request.position, total)),
            self.wanted.eq(line),
            self.fetched_line.eq(line),
            self.reported_line.eq(reported.line),
            queue.eq(request.queue),
            self.queue_read.index.eq(queue),
            self.tag.index.eq(line),
            reported.held.eq(self.reported_held),
            reported.wanted.qp.eq(Mux(idle, self.req.payload.qp, request.qp)),
            reported.wanted.position.eq(Mux(idle, self.req.payload.position, request.position)),
            reported.clear.eq(self.forget | self.reported.forget),
            reported.slot.eq(self.slot),
            reported.slot_enable.eq(self.slot_enable),
            self.slot_data.eq(reported.slot_data),
            fetched.asked.eq(line),
            fetched.kept.eq(self.arrived.line),
            fetched.keep.eq(self.good & is_sink(self.arrived.line, total)),
            fetched.clear.eq(self.forget | self.reported.forget),
            fetched.drop.eq(stale & receives.bit_select(line[: len(fetched.asked)], 1)),
            job.request.eq(request),
            # It was available when it was given out.
            job.request.known.eq(request.position + 1),
            job.line.eq(line),
            job.size_log2.eq(row.size_log2),
            job.rules.eq(row.rules),
            job.desc.eq(row.desc),
            job.driver.eq(row.driver),
            self.held.payload.eq(job),
            self.rsp.payload.eq(answer),
            self.error.payload.queue.eq(request.queue),
            self.error.payload.cause.eq(cause),
        ]
        self._grow_old(m, reported, fetched)
        with m.If(fetched.keep):
            m.d.sync += receives.bit_select(fetched.kept, 1).eq(~request.send)

        sought = Signal(11)  # in pieces: a RAM's output is late
        tag, asked = self.tag.row, Cat(request.queue, request.position)
        m.d.sync += sought.eq(~unequal(Cat(tag.queue, tag.position), asked))

        with m.FSM(name="sinks") as fsm:
            self._begin(m, request, reported, idle, stale)
            # LOAD: reads the row of its queue, and looks at the line that the sink would be fetched
            # into, while the tag of one that was reported is compared; one cycle.
            with m.State("LOAD"):
                m.d.comb += [self.tag.enable.eq(1), self.queue_read.enable.eq(1)]
                with m.If(request.send):
                    m.d.comb += queue.eq(send_queue(self._config, request.qp))
                m.d.sync += request.queue.eq(queue)
                m.next = "REPORTED"
            # REPORTED: answers with a sink that was reported, while the tag of the line is
            # compared; one cycle.
            with m.State("REPORTED"):
                m.d.sync += [
                    row.eq(self.queue_read.row),
                    answer.status.eq(FetchStatus.OK),
                    answer.error.eq(0),
                    answer.queue.eq(request.queue),
                ]
                m.next = "LINE"
                with m.If(~self.queue_read.row.enabled):
                    m.d.sync += answer.status.eq(FetchStatus.EMPTY)
                    m.next = "ANSWER"
                with m.Elif(reported.found & request.send):
                    m.d.comb += reported.touch.eq(1)
                    _answer_with(
                        m, answer, reported.tag.head, reported.tag.wqe, reported.found_line
                    )
                    m.next = "ANSWER"
            # LINE: answers with the sink in the line, or has it fetched; one cycle.
            with m.State("LINE"):
                with m.If(fetched.valid & sought.all()):
                    m.d.comb += fetched.touch.eq(1)
                    _answer_with(m, answer, tag.head, tag.wqe, line)
                    m.next = "ANSWER"
                with m.Else():
                    m.next = "FREE"
            self._fetch(m, line, answer, cause, fetched, request.send)
            # ANSWER: answers.
            with m.State("ANSWER"):
                m.d.comb += self.rsp.valid.eq(1)
                with m.If(self.rsp.ready):
                    m.next = "IDLE"
        # In a register: who takes receive WQEs waits for it.
        with m.If(self.rsp.valid & self.rsp.ready):
            m.d.sync += self.at_work.eq(0)
        with m.Elif(idle & (self.req.valid | self.away.valid)):
            m.d.sync += self.at_work.eq(1)
        m.d.comb += [
            self.waits.eq(fsm.ongoing("FETCH") | fsm.ongoing("WAIT")),
            reported.asking.eq(self.at_work),
        ]
        return m

    def _begin(self, m: Module, request, reported, idle, stale) -> None:
        """A request is taken."""
        # IDLE: takes a request, and looks among the sinks that were reported; ends with it. What is
        # known of an earlier WQE that had the head of a held one is dropped (``stale``).
        with m.State("IDLE"):
            m.d.comb += [idle.eq(1), self.req.ready.eq(1), reported.look.eq(1)]
            asked = self.req.payload
            m.d.sync += [
                request.function.eq(asked.function),
                request.qp.eq(asked.qp),
                request.position.eq(asked.position),
                request.send.eq(1),
                stale.eq(self.begun.valid),
            ]
            for held in (self.begun, self.away):
                with m.If(held.valid):
                    m.d.sync += [
                        request.function.eq(held.payload.function),
                        request.queue.eq(held.payload.queue),
                        request.position.eq(held.payload.head),
                        request.send.eq(0),
                    ]
            with m.If(self.req.valid | self.away.valid):
                m.next = "LOAD"

    def _fetch(self, m: Module, line, answer, cause, fetched, send) -> None:
        """A sink that is nowhere at hand is fetched into its line."""
        # FREE: waits until nobody reads the line; that is known two cycles after it was chosen.
        with m.State("FREE"):
            m.d.comb += fetched.drop.eq(~self.fetched_held)
            with m.If(~self.fetched_held):
                m.d.sync += [self.job.valid.eq(send), self.held.valid.eq(~send)]
                m.next = "FETCH"
        # FETCH: asks for the sink, or for the receive WQE; ends when that is taken.
        with m.State("FETCH"):
            with m.If(Mux(send, self.job.ready, self.held.ready)):
                m.d.sync += [self.job.valid.eq(0), self.held.valid.eq(0)]
                m.next = "WAIT"
        # WAIT: waits until the sink, or what is wrong with it, has come.
        with m.State("WAIT"):
            found = self.arrived.found
            m.d.sync += [answer.status.eq(found.status), answer.error.eq(found.error)]
            m.d.sync += cause.eq(found.cause)
            _answer_with(m, answer, self.arrived.head, found.wqe, line)
            with m.If(self.arrived_valid & (self.arrived.line == line)):
                m.next = "ANSWER"
                with m.If(found.status == FetchStatus.QUEUE_ERROR):
                    m.next = "ERROR"
        # ERROR: tells of a broken ring before the answer.
        with m.State("ERROR"):
            m.d.comb += self.error.valid.eq(1)
            with m.If(self.error.ready):
                m.next = "ANSWER"

    def _grow_old(self, m: Module, reported, fetched) -> None:
        """Sinks go by what is fetched: a READ may wait for its response for any time."""
        fetches, aged, came = Signal(SINK_AGE_BITS), Signal(), Signal()
        m.d.sync += [came.eq(self.reported.fetched), aged.eq(came & fetches.all())]
        with m.If(came):
            m.d.sync += fetches.eq(fetches + 1)
        m.d.comb += [reported.tick.eq(aged), fetched.tick.eq(aged)]


def _answer_with(m: Module, answer: RecvFetched, head, wqe, line) -> None:
    """The answer is the WQE ``wqe`` of descriptor ``head``, whose SGEs are in ``line``."""
    m.d.sync += [answer.head.eq(head), answer.line.eq(line)]
    m.d.sync += [answer.wqe[name].eq(wqe[name]) for name in ("num_sge", "wr_id", "length")]
