"""Which QP sends next: activations in, WQE fetches out, fetched WQEs in order to the requester."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.activation import ActivationList, activation_layout
from hdl.common.contract import require
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register
from hdl.common.streams import passes
from hdl.common.sums import unequal
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.activations import SendFlags
from hdl.ports.context import ContextRead
from hdl.ports.jobs import FetchRequest, FetchStatus, Rewind, SendFetched
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import GENERATION, QpFetch, QpState

from .eligibility import eligible, queue_holds
from .fetch_answer import FetchAnswer
from .fetch_requests import FetchRequests
from .fetch_turn import FetchTurn

__all__ = ["Scheduler"]

#: WQEs that wait for the requester. It is rewound at most once for each that it takes, and once
#: more, so that no WQE that waits sees its generation come again.
MOST_WAITING = 1 << GENERATION - 1


class Scheduler(wiring.Component):
    """Takes activated QPs in turn and asks for the next WQEs of each.

    Parameter ``paced``: QPs have rate limiters (docs/recipes.md). Members: ``doorbell`` (flags
    DOORBELL, and NEXT with the avail index as data), ``wake`` (QP, from the completer),
    ``activate`` (from the firmware after a change of state: DOORBELL and WAKE), ``rewind`` (from
    the requester); ``share``: as many entries of the outstanding table as a QP may have;
    ``context``, ``row_write``: the rows of a QP, and the writes of its own;
    ``fetch_req``/``fetch_rsp`` to the fetch engine; ``spent``, if QPs are ``paced``: whether the
    rate limiter has no credit for a QP. It activates the QP with AGAIN when it has. ``wqe`` to the
    requester: OK and WQE_ERROR answers, per QP in queue order; ``others``: of another QP than the
    one that was taken last there is one, a cycle later; ``release``: lines of answers that a rewind
    has made stale; ``started`` from the requester, a QP of which it has begun a message above
    ``few_bytes``; ``moves``: what it says of a row may be ahead of a rewind.

    Who is next: a QP that may have more goes to the end of the list, so QPs share the fetch engine
    evenly, up to ``BATCH`` WQEs a turn. How far ahead: ``FetchTurn`` works out what a turn asks
    for, and ``FetchRequests`` asks for it while the next turn begins. What came back:
    ``FetchAnswer`` compares an answer with the row.
    ``QpFetch.position`` is the position of the answer expected next, ``asked`` the one to ask for
    next. After a rewind, answers to what was asked before are stale and given back, and each WQE
    that goes on to the requester has the new generation: those of the old one are dropped there. So
    the requester never sends what the scheduler is still to fetch, and is never ahead of it.
    Latency: 8 cycles from an activation to the fetch request when idle. Throughput: a turn takes 6
    cycles, and the next one begins when all of it has been asked for, one WQE a cycle; an answer
    takes 3, or 4 when it tells another index than the one known, a rewind 3 and until the list has
    a place; one at a time. Every input but ``fetch_rsp`` is served even while the requester's queue
    is full, so the requester's rewinds never wait for the requester.
    Reset: nothing is activated.
    """

    def __init__(self, *, config: NicConfig, paced: bool = False):
        self._config, self._paced = config, paced
        activations = stream.Signature(activation_layout(16))
        super().__init__(
            {
                "doorbell": In(activations),
                "wake": In(stream.Signature(QpNumber)),
                "activate": In(activations),
                "share": In(16, init=0xFFFF),
                "rewind": In(stream.Signature(Rewind)),
                "started": In(stream.Signature(QpNumber)),
                "moves": In(1),
                "context": Out(ContextRead("scheduler")),
                "row_write": Out(TableWrite(QpNumber, QpFetch)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(SendFetched)),
                "wqe": Out(stream.Signature(SendFetched)),
                "others": Out(1),
                "release": Out(stream.Signature(8)),
                "waiting": Out(range(config.qps + 1)),
            }
            | ({"spent": Out(TableRead(QpNumber, 1))} if paced else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.list = active = ActivationList(qps=self._config.qps, sets=4, data_width=16)
        m.submodules.turn = turn = FetchTurn(config=self._config)
        m.submodules.requests = requests = FetchRequests(config=self._config)
        m.submodules.answer = answer = FetchAnswer(config=self._config)
        wiring.connect(m, requests.o, wiring.flipped(self.fetch_req))
        wqes = self._queue(m)
        free, once_more = self._again(m, platform, active)
        row, unwoken = self._rows(m, turn, answer)
        blocked = Signal(reset_less=True)  # of a rewind, which says so late
        with m.If(self.release.ready):
            m.d.sync += self.release.valid.eq(0)

        self._contract(m, platform, turn, row)
        with m.FSM(name="serve"):
            # IDLE: takes a rewind, else an answer, else the next QP on the list; ends with it.
            with m.State("IDLE"):
                # Only here: where ``free`` is looked at it stays so until the place is taken.
                with m.If(free & self.started.valid):
                    m.d.comb += self.started.ready.eq(1)
                    once_more(self.started.payload)
                with m.If(self.rewind.valid):
                    self._read_rows(m, self.rewind.payload.qp)
                    m.next = "REWIND"
                with m.Elif(self.fetch_rsp.valid & wqes.ready & ~self.release.valid):
                    self._read_rows(m, self.fetch_rsp.payload.qp)
                    m.next = "ANSWER-ROW"
                with m.Elif(active.o.valid & ~requests.busy):
                    self._read_rows(m, active.o.payload.qp)
                    m.next = "TAKE-ROW"
            self._turn(m, turn, requests, active, free, once_more)
            self._answer(m, answer.o, wqes, row, free, once_more)
            # REWIND: waits for the rows; ends with them.
            with m.State("REWIND"):
                m.d.sync += blocked.eq(self.rewind.payload.blocked)
                with m.If(self.context.valid):
                    m.next = "REWOUND"
            # REWOUND: the QP fetches again from where the requester stands, or waits for a wake
            # unless that has come since; ends when there is a place for it on the list.
            with m.State("REWOUND"), m.If(free):
                rewind, stays = self.rewind.payload, blocked & unwoken.all()
                m.d.comb += [
                    self.row_write.row.position.eq(rewind.position),
                    self.row_write.row.asked.eq(rewind.position),
                    self.row_write.row.generation.eq(rewind.generation),
                    self.row_write.row.blocked.eq(stays),
                    self.row_write.row.reading.eq(row.reading | blocked),
                    self.row_write.enable.eq(1),
                    self.rewind.ready.eq(1),
                ]
                m.next = "IDLE"
                with m.If(~stays):
                    once_more(self.row_write.index)
        return m

    def _contract(self, m: Module, platform, turn, row) -> None:
        """The requester is rewound whenever it moves on by itself, and takes nothing that was
        fetched before: by the row that COUNT works with it is never ahead."""
        if self._config.parity:
            return  # a row with a wrong bit may be at hand until the card stands still
        behind = ~(row.position - turn.sent)[15]
        with m.If(turn.weigh):
            text = "the requester is never ahead of the scheduler"
            require(m, platform, behind | self.moves | self.rewind.valid, text)

    def _queue(self, m: Module):
        """Connect the requester's queue; return its input."""
        depth = max(4, min(2 * self._config.send_lines, MOST_WAITING))
        # ``turns``: it is of another QP than the one before it.
        shape = data.StructLayout({"wqe": SendFetched, "turns": 1})
        m.submodules.wqes = wqes = StreamFifo(shape=shape, depth=depth)
        # Block RAM is late, and the requester begins to work out a packet from what it gets; it
        # takes one in 4 cycles, and says so late.
        m.submodules.next = following = Register(shape=shape)
        if not self._config.push:
            wiring.connect(m, wqes.o, following.i)
        before, turns = Signal(QpNumber), Signal(range(depth + 2))  # those that wait
        taken = passes(following.o) & following.o.payload.turns
        # Of the row that the answer is compared with.
        entry = stream.Signature(SendFetched).create(path=("entry",))
        m.d.comb += [
            self.wqe.valid.eq(following.o.valid),
            self.wqe.payload.eq(following.o.payload.wqe),
            following.o.ready.eq(self.wqe.ready),
            entry.payload.eq(self.fetch_rsp.payload),
            entry.payload.generation.eq(self.row_write.row.generation),
            entry.ready.eq(wqes.i.ready),
            wqes.i.valid.eq(entry.valid),
            wqes.i.payload.wqe.eq(entry.payload),
            wqes.i.payload.turns.eq(entry.payload.qp != before),
        ]
        comes = passes(wqes.i)
        if self._config.push:
            # A WQE that none waits in front of saves the time in the FIFO.
            direct = entry.valid & (wqes.level == 0) & following.i.ready
            comes = passes(entry)
            m.d.comb += [
                wqes.i.valid.eq(entry.valid & ~direct),
                wqes.o.ready.eq(following.i.ready),
                following.i.valid.eq(wqes.o.valid | direct),
                following.i.payload.eq(Mux(direct, wqes.i.payload, wqes.o.payload)),
            ]
        with m.If(comes):
            m.d.sync += before.eq(entry.payload.qp)
        m.d.sync += [
            turns.eq(turns + (comes & wqes.i.payload.turns) - taken),
            self.others.eq(turns != 0),
        ]
        return entry

    def _again(self, m: Module, platform, active):
        """Connect what activates QPs. One QP at a time waits for its place at the end of the list,
        beside what comes next.

        Returns whether none waits, and a function that lets one wait."""
        waits, qp, again = Signal(), Signal(QpNumber, reset_less=True), active.set3
        wiring.connect(m, wiring.flipped(self.doorbell), active.set0)
        wiring.connect(m, wiring.flipped(self.activate), active.set2)
        m.d.comb += [
            active.set1.valid.eq(self.wake.valid),
            active.set1.payload.qp.eq(self.wake.payload),
            active.set1.payload.flags.eq(SendFlags.WAKE),
            self.wake.ready.eq(active.set1.ready),
            self.waiting.eq(active.level),
            again.valid.eq(waits),
            again.payload.qp.eq(qp),
            again.payload.flags.eq(SendFlags.AGAIN),
        ]
        with m.If(again.ready):
            m.d.sync += waits.eq(0)

        def once_more(which: Value) -> None:
            require(m, platform, ~waits, "one QP at a time waits for its place in the list")
            m.d.sync += [waits.eq(1), qp.eq(which)]

        return ~waits, once_more

    def _read_rows(self, m: Module, qp: Value) -> None:
        """Read the rows of the QP at hand."""
        m.d.comb += [self.context.number.eq(qp), self.context.enable.eq(1)]
        if self._paced:
            m.d.comb += [self.spent.index.eq(qp), self.spent.enable.eq(1)]
        m.d.sync += self.row_write.index.eq(qp)

    def _rows(self, m: Module, turn, answer):
        """The QP's row and the requester's position a cycle later: their differences are long.

        Returns the row, and whether there has been no wake since the rewind was asked for."""
        rows = self.context.rows
        cfg, ack, tx, fetch = rows.cfg, rows.ack, rows.tx, rows.fetch
        row, drains = Signal(QpFetch, reset_less=True), Signal()
        sent, high, oldest = (Signal(16, reset_less=True) for _ in range(3))
        unwoken = Signal(3)
        m.d.sync += [
            row.eq(fetch),
            sent.eq(tx.position),
            high.eq(tx.high),
            oldest.eq(ack.position),
            unwoken.eq(~unequal(self.rewind.payload.wake_generation, ack.wake_generation)),
        ]
        m.d.comb += [
            drains.eq(cfg.state == QpState.SQD),  # what has begun goes on
            turn.drains.eq(drains),
            turn.share.eq(self.share),
            self.row_write.row.eq(row),
            turn.cfg.eq(cfg),
            turn.sent.eq(sent),
            turn.high.eq(high),
            answer.answer.eq(self.fetch_rsp.payload),
            answer.half.eq(turn.half),
        ]
        for part in (turn, answer):
            m.d.comb += [
                part.fetch.eq(fetch),
                part.row.eq(row),
                part.oldest.eq(oldest),
                part.tx.eq(tx),
                part.ack.eq(ack),
            ]
        # Of the QP that gets its turn, and of the one for which an answer has come. What has been
        # fetched is taken whatever its rate is: the requester gives back what may not go.
        woken, spent = (turn.flags & SendFlags.WAKE) != 0, self.spent.row if self._paced else 0
        turn_holds = queue_holds(cfg, blocked=row.blocked & ~woken, spent=spent)
        answer_holds = queue_holds(cfg, blocked=fetch.blocked)
        m.d.comb += [
            turn.eligible.eq(eligible(turn_holds)),
            answer.eligible.eq(eligible(answer_holds)),
        ]
        return row, unwoken

    def _turn(self, m: Module, turn, requests, active, free, once_more) -> None:
        """A QP's turn: how far ahead it may fetch."""
        m.d.comb += [
            turn.flags.eq(active.o.payload.flags),
            turn.notified.eq(active.o.payload.data),
            requests.qp.eq(self.row_write.index),
            requests.function.eq(self.context.rows.cfg.function),
            requests.position.eq(turn.position),
            requests.count.eq(turn.count),
            requests.known.eq(turn.known),
            requests.poll.eq(turn.poll),
        ]
        # TAKE-ROW: waits for the rows; ends with them.
        with m.State("TAKE-ROW"), m.If(self.context.valid):
            m.next = "TAKE"
        # TAKE: takes the activation and works out distances; one cycle.
        with m.State("TAKE"):
            m.d.comb += [active.o.ready.eq(1), turn.take.eq(1)]
            m.next = "COUNT"
            with m.If(turn.needless):
                m.next = "IDLE"
        # COUNT: writes what the activation tells, and counts what could be asked for; one cycle.
        with m.State("COUNT"):
            m.d.comb += [
                turn.weigh.eq(1),
                self.row_write.row.eq(turn.notified_row),
                self.row_write.enable.eq(1),
            ]
            m.next = "LIMIT"
            with m.If(~turn.serves):
                m.next = "IDLE"
        # LIMIT: decides how much of it is asked for; one cycle.
        with m.State("LIMIT"):
            m.d.comb += turn.decide.eq(1)
            m.next = "ASK"
        # ASK: hands the requests over; ends when there is a place on the list. It never waits for
        # the fetch engine: that may be waiting for the requester, which may be waiting for a rewind
        # to be taken.
        with m.State("ASK"), m.If(free):
            m.d.comb += [
                requests.start.eq(1),
                self.row_write.row.eq(turn.asked_row),
                self.row_write.enable.eq(1),
            ]
            m.next = "IDLE"
            with m.If(turn.more):
                once_more(self.row_write.index)

    def _answer(self, m: Module, facts, wqes, row, free, once_more) -> None:
        """An answer has come back."""
        answer, changed, qp = self.fetch_rsp.payload, self.row_write.row, self.row_write.index

        def take_answer() -> None:
            """The WQE goes on to the requester, and the row with it."""
            m.d.comb += [
                changed.position.eq(facts.onward),
                changed.ahead.eq(facts.ahead),
                changed.reading.eq(facts.reading),
                self.row_write.enable.eq(1),
                wqes.valid.eq(1),
            ]

        # ANSWER-ROW: waits for the rows; ends with them.
        with m.State("ANSWER-ROW"), m.If(self.context.valid):
            m.next = "ANSWER"
        # ANSWER: takes the expected WQE, which needs no differences; ends when there is a place on
        # the list. Anything else goes the slow path.
        with m.State("ANSWER"):
            with m.If(free & facts.good & facts.fresh & facts.same & ~facts.poll):
                m.d.comb += self.fetch_rsp.ready.eq(1)
                take_answer()
                with m.If(facts.more):
                    once_more(qp)
                m.next = "IDLE"
            with m.Elif(free):
                m.next = "SLOW-PATH"
        # SLOW-PATH: for a newer index, a poll, a stale answer, or none; one cycle.
        # Nothing here waits, and the row is late, so the answer is taken whatever it is.
        with m.State("SLOW-PATH"):
            m.d.comb += self.fetch_rsp.ready.eq(1)
            m.d.sync += self.release.payload.eq(answer.line)
            m.next = "IDLE"
            with m.If(facts.newer):
                m.d.comb += [changed.available.eq(answer.available), changed.polled.eq(0)]
            with m.If(facts.poll):
                m.d.comb += self.row_write.enable.eq(facts.newer)
                with m.If(facts.newer & facts.serves):
                    once_more(qp)
            with m.Elif(facts.good & facts.fresh):
                take_answer()
                with m.If(facts.more | facts.newer):
                    once_more(qp)
            with m.Elif(facts.good):
                m.d.sync += self.release.valid.eq(answer.status == FetchStatus.OK)
            # Not there after all, or a broken ring.
            with m.Elif(facts.inside):
                m.d.comb += [changed.asked.eq(answer.position), self.row_write.enable.eq(1)]
                with m.If(facts.empty):
                    m.d.comb += changed.available.eq(answer.available)
                    with m.If(facts.serves):
                        once_more(qp)
