"""Receive WQEs that messages hold, fetched once more when their lines are gone."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.sums import unequal
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.jobs import WQE_LINE_BITS, FetchRequest, FetchStatus, QueueError, RecvFetched
from hdl.ports.rows import QueueRow

from ..ring.types import FastPathJob
from .lines import is_refetch, refetch_line, refetch_lines
from .path import Arrival, HeldWqe, Tag

__all__ = ["Refetch"]


class Refetch(wiring.Component):
    """Answers requests for receive WQEs that messages hold, and that are in no list any more.

    Their heads are known, and stand for their positions. Each is fetched into one of a few lines,
    which its queue and its head select.

    Members: ``away``: a WQE that is asked for, which comes only while nothing is asked for, and so
    does ``begun``: a WQE is given out, so what is here of an earlier one with its head is not valid
    any more. ``rsp``, ``error``: as in RecvFetch. ``forget`` (a cycle): no line is valid any more.
    ``queue_read``: the rows of the virtqueues, which answers at once. ``tag``: read port of the
    tags of lines. ``job``: a WQE to fetch; ``arrived``, ``arrived_valid``, ``good``: what became of
    it. ``waits`` for the line ``wanted``, which is about to be written; ``line_read``: it is being
    read, known two cycles later. ``at_work``: a request has not been answered.
    Latency: 5 cycles when the WQE is in its line, else three host reads and 50 cycles. One request
    at a time.
    Errors: as RecvFetch; nothing is kept of a WQE in error. Reset: no line is valid.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        line = WQE_LINE_BITS
        super().__init__(
            {
                "away": In(stream.Signature(HeldWqe, always_ready=True)),
                "begun": In(stream.Signature(HeldWqe, always_ready=True)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "error": Out(stream.Signature(QueueError)),
                "forget": In(1),
                "queue_read": Out(TableRead(16, QueueRow)),
                "tag": Out(TableRead(line, Tag)),
                "job": Out(stream.Signature(FastPathJob)),
                "arrived": In(Arrival),
                "arrived_valid": In(1),
                "good": In(1),
                "waits": Out(1),
                "wanted": Out(line),
                "line_read": In(1),
                "at_work": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request = Signal(FetchRequest, reset_less=True)
        row = Signal(QueueRow, reset_less=True)
        answer, cause = Signal(RecvFetched, reset_less=True), Signal.like(self.error.payload.cause)
        line, idle, stale, drop = self.wanted, Signal(), Signal(), Signal()
        lines = Signal(refetch_lines(self._config.recv_lines))  # that are valid
        valid = Signal()  # the line is, a cycle ago
        job = self.job.payload
        m.d.comb += [
            line.eq(refetch_line(request.queue, request.position, self._config.recv_lines)),
            drop.eq(stale),
            self.queue_read.index.eq(request.queue),
            self.tag.index.eq(line),
            job.request.eq(request),
            # It was available when it was given out.
            job.request.known.eq(request.position + 1),
            job.line.eq(line),
            job.size_log2.eq(row.size_log2),
            job.rules.eq(row.rules),
            job.desc.eq(row.desc),
            job.driver.eq(row.driver),
            self.rsp.payload.eq(answer),
            self.error.payload.queue.eq(request.queue),
            self.error.payload.cause.eq(cause),
        ]
        sought = Signal(11)  # in pieces: a RAM's output is late
        tag, asked = self.tag.row, Cat(request.queue, request.position)
        m.d.sync += [sought.eq(~unequal(Cat(tag.queue, tag.position), asked)), stale.eq(0)]
        m.d.sync += valid.eq((lines & _bit(line, lines)).any())

        with m.FSM(name="refetch") as fsm:
            # IDLE: takes a request; ends with it. What is known of an earlier WQE that had the head
            # of one that begins is dropped (``stale``).
            with m.State("IDLE"):
                m.d.comb += idle.eq(1)
                m.d.sync += stale.eq(self.begun.valid)
                for held in (self.begun, self.away):
                    with m.If(held.valid):
                        m.d.sync += [
                            request.function.eq(held.payload.function),
                            request.queue.eq(held.payload.queue),
                            request.position.eq(held.payload.head),
                        ]
                with m.If(self.away.valid):
                    m.next = "LOAD"
            # LOAD: reads the row of its queue, and looks at its line; one cycle.
            with m.State("LOAD"):
                m.d.comb += [self.tag.enable.eq(1), self.queue_read.enable.eq(1)]
                m.next = "ROW"
            # ROW: keeps the row, while the tag of the line is compared; one cycle.
            with m.State("ROW"):
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
            # LINE: answers with the WQE in the line, or has it fetched; one cycle.
            with m.State("LINE"):
                with m.If(valid & sought.all()):
                    _answer_with(m, answer, tag.head, tag.wqe, line)
                    m.next = "ANSWER"
                with m.Else():
                    m.next = "FREE"
            self._fetch(m, line, drop, answer, cause)
            # ANSWER: answers.
            with m.State("ANSWER"):
                m.d.comb += self.rsp.valid.eq(1)
                with m.If(self.rsp.ready):
                    m.next = "IDLE"
        # In a register: who takes receive WQEs waits for it.
        with m.If(self.rsp.valid & self.rsp.ready):
            m.d.sync += self.at_work.eq(0)
        with m.Elif(idle & self.away.valid):
            m.d.sync += self.at_work.eq(1)
        m.d.comb += self.waits.eq(fsm.ongoing("FETCH") | fsm.ongoing("WAIT"))
        with m.If(drop):
            m.d.sync += lines.eq(lines & ~_bit(line, lines))
        with m.If(self.good & is_refetch(self.arrived.line, self._config.recv_lines)):
            m.d.sync += lines.eq(lines | _bit(self.arrived.line, lines))
        with m.If(self.forget):
            m.d.sync += lines.eq(0)
        return m

    def _fetch(self, m: Module, line, drop, answer, cause) -> None:
        """A WQE that is not in its line is fetched into it."""
        # FREE: waits until nobody reads the line; that is known two cycles after it was chosen.
        with m.State("FREE"):
            m.d.comb += drop.eq(~self.line_read)
            with m.If(~self.line_read):
                m.d.sync += self.job.valid.eq(1)
                m.next = "FETCH"
        # FETCH: asks for the WQE; ends when that is taken.
        with m.State("FETCH"):
            with m.If(self.job.ready):
                m.d.sync += self.job.valid.eq(0)
                m.next = "WAIT"
        # WAIT: waits until the WQE, or what is wrong with it, has come.
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


def _bit(line, lines: Signal):
    """The bit of a line among the last ones."""
    return (1 << line[: ceil_log2(len(lines))])[: len(lines)]


def _answer_with(m: Module, answer: RecvFetched, head, wqe, line) -> None:
    """The answer is the WQE ``wqe`` of descriptor ``head``, whose SGEs are in ``line``."""
    m.d.sync += [answer.head.eq(head), answer.line.eq(line)]
    m.d.sync += [answer.wqe[name].eq(wqe[name]) for name in ("num_sge", "wr_id", "length")]
