"""Answers requests for receive WQEs."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    WQE_LINE_BITS,
    FetchStatus,
    QueueError,
    RecvFetched,
    RecvRequest,
    Upcoming,
)
from hdl.ports.numbers import QpNumber
from hdl.ports.sources import has_wqes, queue_of

from ..ring.packed import is_packed
from .awaited import Awaited, RecvAwaited
from .match import RecvMatch, RecvWork, UpcomingSource, answer_fault
from .path import Arrival, HeldWqe, Tag
from .prefetch import Demand
from .shares import ShareMeter
from .sources import SourceAccess

__all__ = ["RecvAnswers"]

#: What RecvAwaited hears of, and what it shows, under the same names.
AWAITS = ("arrived", "arrived_valid", "good", "wanted_done", "starved", "line_freed")
SHOWS = ("waits", "wanted", "line_needed")


class RecvAnswers(wiring.Component):
    """Answers each request with the first WQE of its source's list, and shortens the list.

    ``upcoming`` says for which source a request will come. Its first WQE is looked up at once, so
    that the request is answered a cycle after it has been taken (a *hit*). A request whose WQE is
    not there is a miss: its fetch is demanded from RecvPrefetch, after an index that has to be
    read, and it is looked up again when its line has been written (RecvAwaited).
    A WQE that is given out is its taker's: the source goes on behind it, and never back. That of a
    message which goes on is *held*: it stays first in the list, where the message's next packets
    find it again, until the source is asked for the next one. Who asks again later, because another
    QP takes from the same source or the line was needed, is sent ``away``: its WQE is fetched once
    more, by its head.

    Members: ``req``, ``rsp``, ``upcoming``, ``error``: as in RecvFetch. ``stop``: a reset of
    ``stopped`` waits: no request is taken, and one for that source is EMPTY. ``access``,
    ``linked``: of RecvSources. ``tag``: read port of the tags of lines. ``arrived``,
    ``arrived_valid``, ``good``: what became of a fetch. ``waits``, ``wanted``: the line that the
    request waits for. Of RecvLines: ``ask`` with ``tag.index``, ``busy``, ``good_line``,
    ``wanted_done``, ``release`` of ``released`` (in a cycle of ``room``, and of ``may_release``,
    which is known early). ``answered``: sources to be looked at for more. ``demand``, ``starved``:
    of RecvPrefetch. ``line_needed``, ``line_freed``, ``dropping``, ``epoch``: of RecvReclaim.
    ``away``: a request that others answer, who are always ready. ``begun``: a WQE is given out,
    which ``away`` may tell of from now on. ``at_work``: a request has been taken and neither
    answered nor sent away.
    Latency: 1 cycle for a hit, else 4 when the WQE is at hand. Throughput: a hit in 3 cycles, a
    look-up in 4; of requests that ``upcoming`` has told of, 6 for both when sources come in turn, 5
    when the same one comes again; else 7.
    Errors: QUEUE_ERROR with a row in ``error``; WQE_ERROR. A queue that is not enabled is EMPTY.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        line = WQE_LINE_BITS
        super().__init__(
            {
                "req": In(stream.Signature(RecvRequest)),
                "away": Out(stream.Signature(HeldWqe, always_ready=True)),
                "begun": Out(stream.Signature(HeldWqe, always_ready=True)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "upcoming": In(Upcoming()),
                "error": Out(stream.Signature(QueueError)),
                "stop": In(1),
                "stopped": In(16),
                "access": Out(SourceAccess()),
                "linked": Out(TableRead(line, line)),
                "tag": Out(TableRead(line, Tag)),
                "arrived": In(Arrival),
                "arrived_valid": In(1),
                "good": In(1),
                "answered": Out(stream.Signature(QpNumber)),
                "demand": Out(stream.Signature(Demand)),
                "starved": In(1),
                "line_needed": Out(1),
                "line_freed": In(1),
                "dropping": In(1),
                "epoch": In(2),
                "waiting_source": Out(QpNumber),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
            | {name: Out(1) for name in ("waits", "ask", "release", "may_release", "at_work")}
            | {name: Out(line) for name in ("wanted", "released")}
            | {name: In(1) for name in ("busy", "good_line", "wanted_done", "room")}
        )

    def elaborate(self, platform):
        m = Module()
        work = Signal(RecvWork, reset_less=True)
        source, answer = work.source, work.answer
        m.submodules.awaited = awaited = RecvAwaited(config=self._config)
        m.submodules.meter = meter = ShareMeter(config=self._config)
        for name in ("demand", "read_client", "write_client"):
            connect(m, getattr(awaited, name), flipped(getattr(self, name)))
        cached = Signal()  # what ``work`` has was looked up early
        # Of a packed queue a held WQE is named by its position: its id does not tell where it is.
        # Who asks again for one that is held no more asks for the last that was given.
        packed = is_packed(self._config, work.queue.rules)
        m.d.comb += [
            awaited.work.eq(work),
            awaited.new.eq(self.req.valid & self.req.ready),
            *(getattr(awaited, name).eq(getattr(self, name)) for name in AWAITS),
            *(getattr(self, name).eq(getattr(awaited, name)) for name in SHOWS),
            self.linked.index.eq(source.head),
            self.released.eq(source.head),
            self.rsp.payload.eq(answer),
            self.error.payload.queue.eq(answer.queue),
            self.error.payload.cause.eq(work.cause),
            self.away.payload.function.eq(work.request.function),
            self.away.payload.queue.eq(queue_of(self._config, work.number)),
            self.away.payload.head.eq(Mux(packed, source.first - 1, work.request.head)),
            self.begun.payload.function.eq(work.request.function),
            self.begun.payload.queue.eq(answer.queue),
            self.begun.payload.head.eq(Mux(packed, source.first, answer.head)),
            self.answered.payload.eq(work.number),
            self.waiting_source.eq(work.number),
            meter.share.eq(source.share),
            self.tag.index.eq(source.head),
        ]
        with m.If(self.dropping):
            m.d.sync += cached.eq(0)
        upcoming = Signal(UpcomingSource)
        with m.If(self.upcoming.valid):
            m.d.sync += [upcoming.valid.eq(1), upcoming.number.eq(self.upcoming.source.number)]

        m.submodules.match = match = RecvMatch(config=self._config)
        facts = match.o
        m.d.comb += [
            match.head.eq(work.request.head),
            match.number.eq(work.number),
            match.source.eq(source),
            match.size_log2.eq(work.queue.size_log2),
            match.tag.eq(self.tag.row),
            match.filled.eq(~self.busy & self.good_line),
        ]
        asked = self._choose(m, work, upcoming)
        with m.FSM(name="answers") as fsm:
            # IDLE: takes the row of a request that can go on, of a new one, or of one to come; ends
            # with the row.
            with m.State("IDLE"):
                request = self.req.payload
                number = request.source.number
                same = Mux(request.again, source.held & (request.head == answer.head), ~source.held)
                known = has_wqes(self._config, request.source)
                hits = cached & (number == work.number) & known & same
                m.d.sync += work.early.eq(0)
                with m.If(asked):
                    m.d.comb += awaited.taken.eq(1)
                    with m.If(awaited.over):
                        m.next = "AGAIN"
                with m.Elif(self.req.valid):
                    refused = self.stop & (self.stopped == Cat(Const(1, 1), number))
                    with m.If(refused):
                        m.d.comb += self.req.ready.eq(1)
                        m.d.sync += answer.status.eq(FetchStatus.EMPTY)
                        m.next = "REFUSE"
                    with m.Elif(~self.stop):
                        self._take(m, work)
                        with m.If(self.access.taken):
                            m.d.comb += self.req.ready.eq(1)
                            with m.If(hits):
                                m.next = "HIT"
                    with m.If(self.req.ready):
                        m.d.sync += [work.request.eq(request), cached.eq(0)]
                with m.Elif(upcoming.valid & ~cached & ~self.stop):
                    self._take_early(m, work, upcoming)
            self._look_up(m, work, facts, cached, awaited)
            self._answer(m, work, meter, upcoming)
        m.d.comb += [
            self.at_work.eq(~fsm.ongoing("IDLE") | asked),
            self.may_release.eq(fsm.ongoing("FINISH") | fsm.ongoing("PASS")),
        ]
        return m

    def _choose(self, m: Module, work, upcoming) -> Signal:
        """Whose row is asked for next, by registers and not by the state: whether it is free has to
        be found out in the same cycle. Returns whether a request is neither answered nor away."""
        asked, access = Signal(), self.access
        with m.If(self.req.valid & self.req.ready):
            m.d.sync += asked.eq(1)
        with m.Elif((self.rsp.valid & self.rsp.ready) | self.away.valid):
            m.d.sync += asked.eq(0)
        m.d.comb += [
            access.source.eq(Mux(asked, work.number, upcoming.number)),
            access.other.eq(self.req.payload.source.number),
            access.instead.eq(self.req.valid & ~asked & ~access.held),
        ]
        return asked

    def _take(self, m: Module, work) -> None:
        """Ask for the row of the source that ``_choose`` says, and go on with it."""
        access = self.access
        m.d.comb += access.take.eq(1)
        with m.If(access.taken):
            m.d.sync += work.number.eq(Mux(access.instead, access.other, access.source))
            m.next = "LOAD"

    def _take_early(self, m: Module, work, upcoming) -> None:
        """Ask for the row of the request that is to come, and look it up."""
        self._take(m, work)
        with m.If(self.access.taken):
            m.d.sync += [work.early.eq(1), upcoming.valid.eq(self.upcoming.valid)]

    def _look_up(self, m: Module, work, facts, cached, awaited) -> None:
        """From a row that has been lent to what becomes of the request."""
        request, source, answer = work.request, work.source, work.answer
        fault, found = awaited.fault, awaited.found
        # LOAD: keeps the row; reads the tag and the state of its first line. An early look gives
        # the row back at once: only this machine and RecvReclaim take lines off lists, and that one
        # says ``dropping`` some cycles after it has taken the row.
        with m.State("LOAD"):
            m.d.comb += self.access.leave.eq(work.early)
            m.d.comb += [self.tag.index.eq(self.access.row.head), self.tag.enable.eq(1)]
            m.d.comb += self.ask.eq(1)
            m.d.sync += [source.eq(self.access.row), work.queue.eq(self.access.queue)]
            m.next = "GATHER"
        # GATHER: waits while the tag is compared; one cycle.
        with m.State("GATHER"):
            m.next = "DECIDE"
        # DECIDE: finds out whether the WQE is there, on its way, to be fetched, or not to be had;
        # one cycle.
        with m.State("DECIDE"):
            m.d.sync += [
                answer.status.eq(FetchStatus.OK),
                answer.error.eq(0),
                answer.queue.eq(queue_of(self._config, work.number)),
                answer.head.eq(self.tag.row.head),
                answer.line.eq(source.head),
                answer.wqe.eq(self.tag.row.wqe),
                source.seen.eq(self.epoch),
                source.used.eq(1),
            ]
            with m.If(work.early):
                m.d.sync += cached.eq(work.queue.enabled & facts.ready)
                m.next = "IDLE"
            with m.Elif(~work.queue.enabled | ~has_wqes(self._config, request.source)):
                m.d.sync += [answer.status.eq(FetchStatus.EMPTY), source.used.eq(0)]
                m.next = "ANSWER"
            with m.Elif(request.again & ~facts.held):
                m.next = "AWAY"
            with m.Elif(~request.again & source.held):
                m.next = "PASS"
            with m.Elif(facts.ready):
                m.next = "ANSWER"
            with m.Elif(facts.here & awaited.fault_valid):
                m.d.sync += [*answer_fault(answer, fault), work.cause.eq(fault.found.cause)]
                m.next = "ANSWER"
                with m.If(fault.found.status == FetchStatus.QUEUE_ERROR):
                    m.next = "ERROR"
            with m.Elif(facts.here & self.busy):
                m.d.comb += awaited.asks.eq(Awaited.LINE)
                m.next = "PUT"
            with m.Elif(facts.here):
                m.d.comb += awaited.asks.eq(Awaited.FETCH)
                m.d.sync += work.again.eq(1)
                m.next = "PUT"
            with m.Elif(facts.known):
                m.d.comb += awaited.asks.eq(Awaited.FETCH)
                m.d.sync += [
                    source.given.eq(1),
                    source.late.eq(source.share.run),
                    work.again.eq(0),
                ]
                m.next = "PUT"
            with m.Elif(awaited.found_valid):
                m.d.comb += awaited.used.eq(1)
                m.d.sync += [
                    source.available.eq(found.available),
                    source.newer.eq(source.polling),
                ]
                m.next = "GATHER"
                with m.If(found.status != FetchStatus.OK):
                    m.d.sync += [answer.status.eq(found.status), work.cause.eq(found.cause)]
                    m.next = "ANSWER"
                    with m.If(found.status == FetchStatus.QUEUE_ERROR):
                        m.next = "ERROR"
            with m.Else():
                m.d.comb += awaited.asks.eq(Awaited.INDEX)
                m.next = "PUT"
        # AWAY: gives the row back, and the request to who fetches its WQE once more; one cycle.
        with m.State("AWAY"):
            m.d.comb += [self.access.put.eq(1), self.away.valid.eq(1)]
            m.next = "IDLE"
        # PASS: gives back the line that is held, as the next one is asked for; ends when there is
        # room for it.
        with m.State("PASS"):
            m.d.comb += [self.release.eq(self.room), self.linked.enable.eq(1)]
            with m.If(self.room):
                m.d.sync += [
                    source.first.eq(source.first + 1),
                    source.count.eq(source.count - 1),
                    source.given.eq(0),
                    source.held.eq(0),
                ]
                m.next = "PASSED"
        # PASSED: makes the line behind it the first, and looks that up; one cycle.
        with m.State("PASSED"):
            m.d.comb += [self.tag.index.eq(self.linked.row), self.tag.enable.eq(1)]
            m.d.comb += self.ask.eq(1)
            m.d.sync += source.head.eq(self.linked.row)
            m.next = "GATHER"

    def _answer(self, m: Module, work, meter, upcoming) -> None:
        """Gives the answer, and shortens the list."""
        request, source, answer = work.request, work.source, work.answer
        answers, changed = meter.answers, self.access.changed
        nothing, final = Signal(), Signal()  # the source does not move on; it is done with the WQE
        m.d.comb += [
            changed.eq(source),
            nothing.eq(
                (answer.status == FetchStatus.EMPTY) | (answer.status == FetchStatus.QUEUE_ERROR)
            ),
        ]
        # Of the answer that is given: the same in the cycle before FINISH.
        m.d.sync += final.eq(request.last | (answer.status != FetchStatus.OK))
        # HIT: answers with what was looked up early, of which only ``head`` has to be as it was
        # then; one cycle, behind which ANSWER goes on if the answer was not taken.
        with m.State("HIT"):
            m.d.comb += [self.rsp.valid.eq(1), self.linked.enable.eq(1)]
            m.d.sync += [
                source.eq(self.access.row),
                source.seen.eq(self.epoch),
                source.used.eq(1),
            ]
            m.next = "ANSWER"
            with m.If(self.rsp.ready):
                m.next = "FINISH"
        # ANSWER: answers; ends when that is taken.
        with m.State("ANSWER"):
            m.d.comb += [self.rsp.valid.eq(1), self.linked.enable.eq(1)]
            with m.If(self.rsp.ready):
                m.next = "FINISH"
                with m.If(nothing):
                    m.next = "PUT"
        # Whose request comes next: compared before, as that is long.
        same, differs = Signal(), Signal()
        m.d.sync += [
            same.eq((upcoming.number == work.number) & ~self.upcoming.valid),
            differs.eq((upcoming.number != work.number) & ~self.upcoming.valid),
        ]
        goes_on = upcoming.valid & same
        # FINISH: gives the row back; the first line too, if it is not asked for again. A request
        # that is to come is looked up at once: in the row of another source, or else in the next
        # line of this one's list. Ends when there is room for the line, and for the source on the
        # list of those to look at.
        with m.State("FINISH"):
            ends = Signal()
            m.d.comb += [
                self.answered.valid.eq(self.room | ~final),
                ends.eq(self.answered.valid & self.answered.ready),
                self.access.put.eq(ends),
                self.release.eq(ends & final),
                changed.given.eq(~final),
                changed.held.eq(~final),
                self.begun.valid.eq(ends & ~request.again & (answer.status == FetchStatus.OK)),
            ]
            with m.If(final):
                m.d.comb += [
                    changed.first.eq(source.first + 1),
                    changed.count.eq(source.count - 1),
                    changed.head.eq(self.linked.row),
                    changed.share.eq(meter.after),
                ]
            with m.If(ends):
                m.d.sync += answers.eq(answers + final)
                m.next = "IDLE"
                with m.If(upcoming.valid & ~self.stop & differs):
                    self._take_early(m, work, upcoming)
                with m.Elif(goes_on & ~self.stop & final):
                    m.d.comb += [self.tag.index.eq(self.linked.row), self.tag.enable.eq(1)]
                    m.d.comb += self.ask.eq(1)
                    m.d.sync += [source.eq(changed), work.early.eq(1)]
                    m.d.sync += upcoming.valid.eq(self.upcoming.valid)
                    m.next = "GATHER"
        # PUT: gives the row back as it is; one cycle.
        with m.State("PUT"):
            m.d.comb += self.access.put.eq(1)
            m.next = "IDLE"
        # AGAIN: looks the request up once more; ends when its row is lent.
        with m.State("AGAIN"):
            self._take(m, work)
        # ERROR: tells of a broken ring before the answer; ends when that is taken.
        with m.State("ERROR"):
            m.d.comb += self.error.valid.eq(1)
            with m.If(self.error.ready):
                m.next = "ANSWER"
        # REFUSE: answers EMPTY, as the queue is being reset and nobody gets what was offered
        # before; ends when that is taken.
        with m.State("REFUSE"):
            m.d.comb += self.rsp.valid.eq(1)
            with m.If(self.rsp.ready):
                m.next = "IDLE"
