"""Which QP sends next: activations in, WQE fetches out, fetched WQEs in order to the requester."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.activation import ActivationList, activation_layout
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register
from hdl.common.sums import unequal, wide_sum
from hdl.config import NicConfig
from hdl.ports.jobs import FetchRequest, FetchStatus, Rewind, SendFetched
from hdl.ports.rows import QpAck, QpCfg, QpFetch, QpState, QpTx
from hdl.ports.tables import TableRead, TableWrite

from .pace import AHEAD, log2_ahead

__all__ = ["Scheduler", "SendFlags"]


#: WQEs asked for in one turn.
BATCH = 8


class SendFlags(enum.IntFlag, shape=4):
    """Why a QP is activated."""

    DOORBELL = 1
    WAKE = 2  # the completer has finished an operation, or the firmware has changed the QP
    AGAIN = 4  # there may be more to fetch
    NEXT = 8  # the activation carries the avail index (NOTIFICATION_DATA)


class Scheduler(wiring.Component):
    """Takes activated QPs in turn and asks for the next WQEs of each.

    Members: ``doorbell`` (flags DOORBELL, and NEXT with the avail index as data), ``wake`` (QP,
    from the completer), ``activate`` (from the firmware after a change of state: DOORBELL and
    WAKE), ``rewind`` (from the requester); ``fetch_req``/``fetch_rsp`` to the fetch engine;
    ``wqe`` to the requester: OK and WQE_ERROR answers, per QP in queue order; ``release``: lines
    of answers that a rewind has made stale; ``started`` from the requester, a QP of which it has
    begun a message above ``few_bytes``.

    A QP that may have more goes to the end of the list, so QPs share the fetch engine evenly, up to
    ``BATCH`` WQEs a turn. ``QpFetch.position`` is the position of the answer expected next,
    ``asked`` the one to ask for next: WQEs known to be available are asked for before the ones in
    front have come, as many as ``pace`` says, but none while more than these have come and wait to
    be sent: then the QP is served again when the requester has ``started`` one. A QP that READs
    asks for no more than the requester can start (docs/transport.md). The index is asked for by
    itself (a poll) when all that is known has been asked for, and with each doorbell that does not
    tell it; once, until there is news. After a rewind, answers to what was asked before are stale
    and given back.
    Latency: 8 cycles from an activation to the fetch request when idle. Throughput: a turn takes 6
    cycles, and the next one begins when all of it has been asked for, one WQE a cycle; an answer
    takes 3, or 4 when it tells another index than the one known, a rewind 3 and until the list has
    a place; one at a time. Every input but ``fetch_rsp`` is served even while the requester's queue
    is full, so the requester's rewinds never wait for the requester.
    Reset: nothing is activated.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        activations = stream.Signature(activation_layout(16))
        super().__init__(
            {
                "doorbell": In(activations),
                "wake": In(stream.Signature(14)),
                "activate": In(activations),
                "rewind": In(stream.Signature(Rewind)),
                "started": In(stream.Signature(14)),
                "cfg": Out(TableRead(14, QpCfg)),
                "ack": Out(TableRead(14, QpAck)),
                "tx": Out(TableRead(14, QpTx)),
                "row": Out(TableRead(14, QpFetch)),
                "row_write": Out(TableWrite(14, QpFetch)),
                "fetch_req": Out(stream.Signature(FetchRequest)),
                "fetch_rsp": In(stream.Signature(SendFetched)),
                "wqe": Out(stream.Signature(SendFetched)),
                "release": Out(stream.Signature(8)),
                "waiting": Out(range(config.qps + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.list = active = ActivationList(qps=self._config.qps, sets=4, data_width=16)
        depth = max(4, 2 * self._config.send_lines)
        m.submodules.wqes = wqes = StreamFifo(shape=SendFetched, depth=depth)
        # Block RAM is late, and the requester begins to work out a packet from what it gets; it
        # takes one in 4 cycles, and says so late.
        m.submodules.next = following = Register(shape=SendFetched)
        wiring.connect(m, wqes.o, following.i)
        wiring.connect(m, following.o, wiring.flipped(self.wqe))
        wiring.connect(m, wiring.flipped(self.doorbell), active.set0)
        wiring.connect(m, wiring.flipped(self.activate), active.set2)
        m.d.comb += [
            active.set1.valid.eq(self.wake.valid),
            active.set1.payload.qp.eq(self.wake.payload),
            active.set1.payload.flags.eq(SendFlags.WAKE),
            self.wake.ready.eq(active.set1.ready),
            self.waiting.eq(active.level),
        ]

        qp = Signal(14)
        # One QP at a time waits for its place at the end of the list, beside what comes next.
        again, wants, who = active.set3, Signal(), Signal(14, reset_less=True)
        free = ~wants
        m.d.comb += [
            again.valid.eq(wants),
            again.payload.qp.eq(who),
            again.payload.flags.eq(SendFlags.AGAIN),
        ]
        with m.If(again.ready):
            m.d.sync += wants.eq(0)

        def once_more():
            m.d.sync += [wants.eq(1), who.eq(qp)]

        def read_rows(index):
            for table in (self.cfg, self.ack, self.tx, self.row):
                m.d.comb += [table.index.eq(index), table.enable.eq(1)]
            m.d.sync += qp.eq(index)

        # The QP's row and the requester's position a cycle later: their differences are long.
        row, sent = Signal(QpFetch, reset_less=True), Signal(16, reset_less=True)
        cfg, ack, tx = self.cfg.row, self.ack.row, self.tx.row
        m.d.sync += [row.eq(self.row.row), sent.eq(tx.position)]
        next_row = Signal(QpFetch)
        available = Signal(16)  # known of the ring, at this step
        m.d.comb += [
            next_row.eq(row),
            available.eq(row.available),
            next_row.available.eq(available),
            self.row_write.index.eq(qp),
            self.row_write.row.eq(next_row),
        ]

        taken, answer, rewind = active.o.payload, self.fetch_rsp.payload, self.rewind.payload
        runs = Signal()  # the QP may fetch: to send, or to flush
        m.d.comb += runs.eq((cfg.state == QpState.RTS) | (cfg.state == QpState.ERR))
        # From the row's position: what is available, what the answer tells of, what it answers.
        known, told, answered = Signal(16), Signal(16), Signal(16)

        def is_newer(told, known):
            """The newer of two avail indices is the one further from the position."""
            return (told <= self._config.queue_size) & (told > known)

        m.d.comb += [
            known.eq(row.available - row.position),
            told.eq(answer.available - row.position),
            answered.eq(answer.position - row.position),
        ]

        # A turn: distances (TAKE), what is known and how many of it to ask for (COUNT, LIMIT), and
        # that all of it is asked for (ASK), beside what comes next.
        heard, tells, rings = Signal(16), Signal(), Signal()  # the index told; a poll is asked for
        heard_told, heard_known = Signal(16), Signal(16)
        heard_unasked, row_unasked = Signal(16), Signal(16)
        blocked, news = Signal(), Signal()
        newest, polled, serve = Signal(16), Signal(), Signal()
        asked, unasked = Signal(16), Signal(16)
        under_way, pending, reads = Signal(16), Signal(16), Signal(8)
        piled = Signal(16)  # answered and not sent
        room, startable, spare = Signal(8), Signal(9), Signal(signed(10))
        count = Signal(range(BATCH + 1))
        rest, poll, polls = Signal(), Signal(), Signal()
        whole = Signal()  # all that is known has been asked for then
        limits = Array([min(1 << n, self._config.send_lines) for n in range(AHEAD + 1)])
        limit, half, most_reads = Signal(8), Signal(8), Signal(8)
        m.d.sync += [
            limit.eq(limits[self.row.row.ahead]),
            half.eq(Array(n // 2 + 1 for n in limits)[self.row.row.ahead]),
            most_reads.eq(cfg.max_rd_atomic),
        ]

        # What a turn asks for: WQEs, then a poll. No turn begins before.
        request, position = self.fetch_req.payload, Signal(16, reset_less=True)
        left, polling, asking = Signal(range(BATCH + 1)), Signal(), Signal()
        asker = Signal(14, reset_less=True)
        m.d.comb += [
            asking.eq((left != 0) | polling),
            self.fetch_req.valid.eq(asking),
            request.qp.eq(asker),
            request.queue.eq(1 + self._config.cqs + (asker << 1)),
            request.position.eq(Mux(left != 0, position, request.known)),
        ]
        asked_then = wide_sum(m, asked, count, block=8)[:16]
        with m.If(self.fetch_req.ready):
            with m.If(left != 0):
                m.d.sync += [left.eq(left - 1), position.eq(position + 1)]
            with m.Else():
                m.d.sync += polling.eq(0)

        # An answer: compared with the row as it comes, as far as that is short (ANSWER-ROW), which
        # mostly is enough to change it (ANSWER); else after differences from it (SETTLE).
        newer = Signal()  # it tells an index that is
        fresh, good, empty = Signal(), Signal(), Signal()
        inside, more = Signal(), Signal()  # it is still wanted; there is more to ask for
        answer_told, answer_known = Signal(16), Signal(16)
        answer_place = Signal(16)
        ahead = Signal(8)  # asked for and not answered: never as many as this can count
        serves, expected, all_asked, told_before = Signal(), Signal(4), Signal(4), Signal(4)
        reads_left = Signal()  # some of the QP's have not finished
        onward = Signal(16)  # the position behind the answer's
        unwoken = Signal(3)  # a rewind: no wake since (all)
        polled_only = Signal()
        m.d.comb += [
            wqes.i.payload.eq(answer),
            newer.eq(is_newer(answer_told, answer_known)),
            fresh.eq(serves & expected.all()),
            inside.eq(~answer_place[8:].any() & (answer_place[:8] < ahead)),
            # Half of what may be under way is asked for at a time.
            more.eq((ahead <= half) & ~all_asked.all()),
        ]
        late = self.row.row

        def alike(one, other):
            """Where two positions are the same, in four parts: all of it would be late."""
            return Cat(one.word_select(n, 4) == other.word_select(n, 4) for n in range(4))

        m.d.sync += [
            good.eq((answer.status == FetchStatus.OK) | (answer.status == FetchStatus.WQE_ERROR)),
            empty.eq(answer.status == FetchStatus.EMPTY),
            polled_only.eq(answer.poll),
            answer_told.eq(told),
            answer_known.eq(known),
            answer_place.eq(answered),
            ahead.eq(late.asked[:8] - late.position[:8]),
            serves.eq(runs & ~late.blocked),
            expected.eq(alike(answer.position, late.position)),
            all_asked.eq(alike(late.available, late.asked)),
            told_before.eq(alike(answer.available, late.available)),
            reads_left.eq(tx.reads != ack.reads),
            onward.eq(answer.position + 1),
            unwoken.eq(~unequal(rewind.wakes, ack.wakes)),
        ]
        with m.If(self.release.ready):
            m.d.sync += self.release.valid.eq(0)
        ahead_next = log2_ahead(m, self._config, answer.wqe.length, answer.wqe.operation.data)

        def take_answer():
            """The WQE goes on to the requester, and the row with it."""
            m.d.comb += [
                next_row.position.eq(onward),
                next_row.ahead.eq(ahead_next),
                next_row.reading.eq(answer.wqe.operation.data | (row.reading & reads_left)),
                self.row_write.enable.eq(1),
                wqes.i.valid.eq(1),
            ]

        with m.FSM(name="serve"):
            with m.State("IDLE"):
                # Only here: where ``free`` is looked at it stays so until the place is taken.
                with m.If(free & self.started.valid):
                    m.d.comb += self.started.ready.eq(1)
                    m.d.sync += [wants.eq(1), who.eq(self.started.payload)]
                with m.If(self.rewind.valid):
                    read_rows(rewind.qp)
                    m.next = "REWIND"
                with m.Elif(self.fetch_rsp.valid & wqes.i.ready & ~self.release.valid):
                    read_rows(answer.qp)
                    m.next = "ANSWER-ROW"
                with m.Elif(active.o.valid & ~asking):
                    read_rows(taken.qp)
                    m.next = "TAKE-ROW"
            with m.State("TAKE-ROW"):
                m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += active.o.ready.eq(1)
                doorbell = (taken.flags & SendFlags.DOORBELL) != 0
                wakes = (taken.flags & SendFlags.WAKE) != 0
                next_told = (taken.flags & SendFlags.NEXT) != 0
                # A wake is of interest to a QP that is blocked or READs.
                m.d.sync += [
                    heard.eq(taken.data),
                    tells.eq(next_told),
                    rings.eq(doorbell & (~next_told | wakes)),
                    blocked.eq(row.blocked & ~wakes),
                    serve.eq(
                        runs
                        & (~row.blocked | wakes)
                        & (
                            row.blocked
                            | row.reading
                            | doorbell
                            | ((taken.flags & SendFlags.AGAIN) != 0)
                        )
                    ),
                    asked.eq(row.asked),
                    heard_told.eq(taken.data - row.position),
                    heard_known.eq(known),
                    heard_unasked.eq(taken.data - row.asked),
                    row_unasked.eq(row.available - row.asked),
                    under_way.eq(row.asked - row.position),
                    pending.eq(row.asked - sent),
                    piled.eq(row.position - sent),
                    reads.eq(tx.reads - ack.reads),
                ]
                m.next = "COUNT"
                with m.If((taken.flags == SendFlags.WAKE) & ~row.blocked & ~row.reading):
                    m.next = "IDLE"
            with m.State("COUNT"):
                # The driver's word is believed only where it can be true and is news: it may be
                # older than what was read since.
                m.d.comb += news.eq(tells & is_newer(heard_told, heard_known))
                with m.If(news):
                    m.d.comb += [available.eq(heard), next_row.polled.eq(0)]
                with m.Elif(rings):
                    m.d.comb += next_row.polled.eq(0)
                m.d.comb += [next_row.blocked.eq(blocked), self.row_write.enable.eq(1)]

                few = (row.ahead == AHEAD) | (piled <= limit)

                def some(unasked):
                    return (unasked != 0) & (unasked <= self._config.queue_size)

                # Without a READ that would wake the QP one is always asked for: the requester gives
                # back what it cannot start.
                m.d.sync += [
                    newest.eq(available),
                    polled.eq(next_row.polled),
                    unasked.eq(Mux(news, heard_unasked, row_unasked)),
                    room.eq(Mux((under_way < limit) & few, limit - under_way, 0)),
                    startable.eq(0),
                    # Of both, as ``news`` comes late.
                    rest.eq(Mux(news, some(heard_unasked), some(row_unasked))),
                    poll.eq(Mux(news, heard_unasked == 0, rings | (row_unasked == 0))),
                ]
                m.d.comb += spare.eq(most_reads - pending[:8] - reads)
                with m.If(~pending[8:].any() & (spare >= 0)):
                    m.d.sync += startable.eq(spare)
                with m.If((pending == 0) & (reads == 0) & (most_reads == 0)):
                    m.d.sync += startable.eq(1)
                with m.If(~row.reading):
                    m.d.sync += startable.eq(BATCH)
                m.next = "LIMIT"
                with m.If(~serve):
                    m.next = "IDLE"
            with m.State("LIMIT"):
                most = Signal(8)
                m.d.comb += most.eq(Mux(room < startable, room, startable))
                fits = (unasked <= most) & (unasked <= BATCH)
                m.d.sync += whole.eq((unasked == 0) | (rest & fits))
                with m.If(~rest):
                    m.d.sync += count.eq(0)
                with m.Elif((unasked < most) & (unasked < BATCH)):
                    m.d.sync += count.eq(unasked)
                with m.Elif(most < BATCH):
                    m.d.sync += count.eq(most)
                with m.Else():
                    m.d.sync += count.eq(BATCH)
                # More than a turn's worth: again. More than may be under way: with an answer or a
                # wake.
                m.d.sync += rest.eq(rest & (unasked > BATCH) & (most > BATCH))
                m.next = "ASK"
            with m.State("ASK"):
                # Never waits for the fetch engine: that may be waiting for the requester, and that
                # for a rewind to be taken.
                with m.If(free):
                    # All that is known has been asked for, or the doorbell may bring news.
                    m.d.comb += [
                        polls.eq(~polled & (poll | whole)),
                        next_row.available.eq(newest),
                        next_row.blocked.eq(0),
                        next_row.asked.eq(asked_then),
                        next_row.polled.eq(polled | polls),
                        self.row_write.enable.eq(1),
                    ]
                    m.d.sync += [
                        request.function.eq(cfg.function),
                        request.known.eq(newest),
                        asker.eq(qp),
                        position.eq(asked),
                        left.eq(count),
                        polling.eq(polls),
                    ]
                    m.next = "IDLE"
                    with m.If(rest):
                        once_more()
            with m.State("ANSWER-ROW"):
                m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(free & good & fresh & told_before.all() & ~polled_only):
                    m.d.comb += self.fetch_rsp.ready.eq(1)
                    take_answer()
                    with m.If(more):
                        once_more()
                    m.next = "IDLE"
                with m.Elif(free):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # Whatever becomes of it: nothing here waits, and the row is late.
                m.d.comb += self.fetch_rsp.ready.eq(1)
                m.d.sync += self.release.payload.eq(answer.line)
                with m.If(newer):
                    m.d.comb += [available.eq(answer.available), next_row.polled.eq(0)]
                with m.If(polled_only):
                    m.d.comb += self.row_write.enable.eq(newer)
                    m.next = "IDLE"
                    with m.If(newer & serves):
                        once_more()
                with m.Elif(good & fresh):
                    take_answer()
                    m.next = "IDLE"
                    with m.If(more | newer):
                        once_more()
                with m.Elif(good):
                    m.d.sync += self.release.valid.eq(answer.status == FetchStatus.OK)
                    m.next = "IDLE"
                with m.Else():
                    # Not there after all, or a broken ring.
                    m.next = "IDLE"
                    with m.If(inside):
                        m.d.comb += [next_row.asked.eq(answer.position)]
                        m.d.comb += self.row_write.enable.eq(1)
                        with m.If(empty):
                            m.d.comb += next_row.available.eq(answer.available)
                            with m.If(serves):
                                once_more()
            with m.State("REWIND"):
                m.next = "REWOUND"
            with m.State("REWOUND"), m.If(free):
                stays = rewind.blocked & unwoken.all()
                m.d.comb += [
                    next_row.position.eq(rewind.position),
                    next_row.asked.eq(rewind.position),
                    next_row.blocked.eq(stays),
                    next_row.reading.eq(row.reading | rewind.blocked),
                    self.row_write.enable.eq(1),
                    self.rewind.ready.eq(1),
                ]
                m.next = "IDLE"
                with m.If(~stays):
                    once_more()
        return m
