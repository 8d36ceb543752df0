"""Fetches the WQEs of receive sources ahead of the packets that need them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.activation import activation_layout
from hdl.common.address import mask
from hdl.common.skid import Register
from hdl.common.sums import unequal
from hdl.common.tables import TableWrite
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import WQE_LINE_BITS, Activation
from hdl.ports.numbers import QpNumber, function_of, ordinal_in
from hdl.ports.rows import QueueRow
from hdl.ports.sources import queue_of

from ..ring.types import FastPathJob
from .ahead import DOORBELL, POLLED, AheadSources
from .policy import PrefetchPolicy
from .shares import LineGrants
from .sources import SourceAccess, SourceRow

__all__ = ["Demand", "RecvPrefetch"]


class Demand(data.Struct):
    """A request waits for the first WQE of ``source``. ``again``: its line is in the list, but
    holds no WQE; else the list is empty, and begins with the WQE at ``first``."""

    source: QpNumber
    again: 1


class _Item(data.Struct):
    """The next source of the list, or with ``waits`` the first of those that wait for lines."""

    valid: 1
    waits: 1
    work: activation_layout(16)


class _Turn(data.Struct):
    """The source at hand, and why."""

    item: _Item
    pair: QpNumber
    source: SourceRow
    queue: QueueRow
    beyond: 16  # the bits of a position that are beyond its place in the queue's ring
    demanded: 1  # not the item's turn, a demand's
    again: 1
    listed: 3  # the list was not empty; in pieces, as the row comes out of RAM
    added: range(PrefetchPolicy.BURST + 1)  # lines, from ``begin`` on
    begin: WQE_LINE_BITS
    polled: 1  # its avail index has come
    dirty: 1  # its row changes
    more: 1


class RecvPrefetch(wiring.Component):
    """Asks for the next WQEs of sources in turn, and first of all for the one that is demanded.

    A source is looked at after a notification (``doorbell``) and after each answer (``more``). In
    its turn up to ``PrefetchPolicy.BURST`` WQEs are asked for, as far as ``LineGrants`` allows.
    When all known WQEs are asked for, the avail index is read, without ``avail_event``.
    docs/queues.md says how many lines a source gets. The row is shared during a turn, so that the
    source's requests are answered meanwhile; at the end the turn's lines are added to what the list
    is then.

    Members: ``demand``: taken when its fetch has begun; ``starved`` (a cycle): there is no line for
    it. ``access``: of the rows (SourceRow). ``link``, ``own``: lines that are added to lists.
    ``job``: WQEs to fetch, each into a line; taken in a cycle of ``room`` only. ``spare`` with
    ``spare_valid``: a free line; ``take`` (a cycle): it is in a list now; ``free``: how many there
    are. ``epoch``: the current one. ``stop``: nothing is begun but what is demanded; sources on the
    list are given up. ``quiet``: no source is on the list, or its index on its way.
    Latency: 5 cycles from a demand to its job. Throughput: a WQE in 9 cycles, each further one of a
    turn in 2, as fast as there are free lines and the path takes jobs.
    Errors: none; a broken ring is found when the WQE is demanded. Reset: no source is on the list.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "doorbell": In(stream.Signature(Activation)),
                "more": In(stream.Signature(QpNumber)),
                "demand": In(stream.Signature(Demand)),
                "starved": Out(1),
                "access": Out(SourceAccess()),
                "link": Out(TableWrite(WQE_LINE_BITS, WQE_LINE_BITS)),
                "own": Out(TableWrite(WQE_LINE_BITS, QpNumber)),
                "job": Out(stream.Signature(FastPathJob)),
                "room": In(1),
                "spare": In(WQE_LINE_BITS),
                "spare_valid": In(1),
                "take": Out(1),
                "free": In(WQE_LINE_BITS),
                "epoch": In(2),
                "stop": In(1),
                "quiet": Out(1),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ahead = ahead = AheadSources(config=self._config)
        m.submodules.grants = grants = LineGrants(config=self._config)
        connect(m, flipped(self.doorbell), ahead.doorbell)
        # Who answers takes the list's word a cycle later: it is late.
        m.submodules.answered = answered = Register(shape=QpNumber)
        connect(m, flipped(self.more), answered.i)
        connect(m, answered.o, ahead.answered)
        connect(m, ahead.read_client, flipped(self.read_client))
        turn = Signal(_Turn)
        source, item = turn.source, turn.item
        m.d.comb += [
            ahead.o.ready.eq(~item.valid & ~grants.first.valid),
            ahead.more.payload.eq(turn.pair),
            grants.share.eq(source.share),
            grants.count.eq(source.count),
            grants.given.eq(source.given),
            grants.used.eq(source.used),
            grants.late.eq(source.late != 0),
            grants.free.eq(self.free),
            grants.its_turn.eq(item.waits),
            grants.wait.payload.eq(turn.pair),
            self.access.changed.eq(source),
            self.link.index.eq(source.tail),
            self.link.row.eq(self.spare),
            self.own.index.eq(self.spare),
            self.own.row.eq(turn.pair),
            self.own.enable.eq(self.take),
        ]
        with m.If(~item.valid):
            m.d.sync += [
                item.work.eq(ahead.o.payload),
                item.valid.eq(ahead.o.valid | grants.first.valid),
                item.waits.eq(grants.first.valid),
            ]
            with m.If(grants.first.valid):
                m.d.sync += [item.work.qp.eq(grants.first.payload), item.work.flags.eq(0)]
        self._asked(m, turn, ahead)
        self._choose(m, turn)
        known = self._known(m, turn)
        with m.FSM(name="prefetch") as fsm:
            self._begin(m, turn)
            self._fetch(m, turn, known, ahead, grants)
            self._demand(m, turn)
            self._merge(m, turn, ahead)
            # LIST: puts the source on the list again, as there may be more to ask for; ends when
            # that is taken.
            with m.State("LIST"):
                with m.If(ahead.more.ready):
                    m.d.sync += ahead.more.valid.eq(0)
                    m.next = "IDLE"
        m.d.comb += self.quiet.eq(
            fsm.ongoing("IDLE") & ~answered.o.valid & ~item.valid & ahead.none & ~ahead.polling
        )
        return m

    def _asked(self, m: Module, turn, ahead) -> None:
        """What is asked for: the WQE behind the list, the first one again, or the avail index."""
        source, queue = turn.source, turn.queue
        position, number = Signal(16), Signal(16)
        job, poll = self.job.payload, ahead.poll.payload
        m.d.comb += [
            position.eq(source.first + source.count),
            number.eq(queue_of(self._config, turn.pair)),
            job.size_log2.eq(queue.size_log2),
            job.rules.eq(queue.rules),
            job.desc.eq(queue.desc),
            job.driver.eq(queue.driver),
            job.line.eq(self.spare),
            poll.row.eq(queue),
        ]
        for request in (job.request, poll.request):
            m.d.comb += [
                request.function.eq(function_of(ordinal_in(self._config, "qps", turn.pair))),
                request.qp.eq(turn.pair),
                request.queue.eq(number),
                request.position.eq(position),
            ]
        m.d.comb += job.request.known.eq(source.available)
        with m.If(turn.again):
            m.d.comb += [job.line.eq(source.head), job.request.position.eq(source.first)]

    def _known(self, m: Module, turn):
        """Whether something is available behind the list; a cycle late."""
        source = turn.source
        # Of available less first less one less count the sign says enough, in one carry chain.
        ahead, short = Signal(16), Signal(16)
        enough, outside = Signal(), Signal(6)  # in pieces: a sum is late
        a, b, c = source.available, ~source.first, ~Cat(source.count, Const(0, 16 - WQE_LINE_BITS))
        m.d.comb += [
            ahead.eq(source.available + ~source.first),
            short.eq((a ^ b ^ c) + Cat(Const(1, 1), (a & b) | (c & (a | b)))),
        ]
        m.d.sync += [enough.eq(~short[15]), outside.eq(unequal(ahead & turn.beyond, Const(0, 16)))]
        return enough & ~outside.any()

    def _append(self, m: Module, turn) -> None:
        """The line that was spare becomes the last of the source's list."""
        source = turn.source
        m.d.comb += [self.take.eq(1), self.link.enable.eq(source.count != 0)]
        m.d.sync += source.tail.eq(self.spare)

    def _choose(self, m: Module, turn) -> None:
        """Which source's row is asked for: that of the turn while it is here, to change it; else
        that of the source that is demanded, or of the next on the list."""
        access = self.access
        m.d.comb += access.source.eq(turn.item.work.qp)
        with m.If(access.held):
            m.d.comb += access.source.eq(turn.pair)
        with m.Elif(self.demand.valid):
            m.d.comb += access.source.eq(self.demand.payload.source)

    def _begin(self, m: Module, turn) -> None:
        """Takes the row of a source."""
        access, item, demand = self.access, turn.item, self.demand
        # IDLE: takes the row of the source that is demanded, else of the next on the list; ends
        # with one.
        with m.State("IDLE"):
            m.d.sync += [
                turn.pair.eq(access.source),
                turn.more.eq(0),
                turn.added.eq(0),
                turn.polled.eq(0),
                turn.dirty.eq(0),
                turn.demanded.eq(demand.valid),
                turn.again.eq(demand.valid & demand.payload.again),
            ]
            m.d.comb += [access.take.eq(item.valid | demand.valid), access.shared.eq(~demand.valid)]
            with m.If(access.taken):
                m.next = "LOAD"
        # LOAD: keeps the rows, with the index that was read; one cycle.
        with m.State("LOAD"):
            m.d.sync += [
                turn.source.eq(access.row),
                turn.queue.eq(access.queue),
                turn.beyond.eq(~mask(access.queue.size_log2)),
                turn.listed.eq(Cat(access.row.count[n : n + 5].any() for n in (0, 5, 10))),
            ]
            m.next = "WEIGH"
            with m.If(turn.demanded):
                m.next = "DEMAND"
            with m.Elif((item.work.flags & POLLED) != 0):
                m.d.sync += [
                    turn.source.polling.eq(0),
                    turn.polled.eq(1),
                    turn.dirty.eq(1),
                ]
                with m.If(~access.row.newer):
                    m.d.sync += turn.source.available.eq(item.work.data)
        # WEIGH: works out what is known and what is allowed; one cycle.
        with m.State("WEIGH"):
            m.next = "FETCH"

    def _fetch(self, m: Module, turn, known, ahead, grants) -> None:
        """What a source gets in its turn."""
        source, item = turn.source, turn.item
        wait, first = grants.wait, grants.first
        fresh = (item.work.flags & POLLED) != 0
        notified = (item.work.flags & DOORBELL) != 0
        # FETCH: asks for a WQE, for the avail index, or for nothing; a WQE is followed by the next
        # one of the source, anything else ends its turn.
        with m.State("FETCH"):
            m.d.comb += ahead.settled.eq(fresh)
            m.d.sync += item.work.flags.eq(item.work.flags & ~POLLED)
            m.next = "END"
            with m.If(self.stop | ~turn.queue.enabled):
                m.d.sync += item.valid.eq(0)
                m.d.comb += first.ready.eq(item.waits)
            with m.Elif(known & grants.may):
                m.d.comb += self.job.valid.eq(self.spare_valid & self.room)
                with m.If(self.job.valid & self.job.ready):
                    self._append(m, turn)
                    m.d.sync += [source.count.eq(source.count + 1), turn.added.eq(turn.added + 1)]
                    with m.If(turn.added == 0):
                        m.d.sync += turn.begin.eq(self.spare)
                    m.d.sync += source.late.eq(source.late - (source.late != 0))
                    m.d.sync += turn.dirty.eq(1)
                    with m.If(item.waits):
                        m.d.sync += item.valid.eq(0)  # it is still the first of those that wait
                    with m.Elif(turn.added == PrefetchPolicy.BURST - 1):
                        m.d.sync += [item.valid.eq(0), turn.more.eq(1)]
                    with m.Elif(~self.demand.valid):
                        m.next = "WEIGH"
                with m.Elif(~self.room | (self.job.valid & ~self.demand.valid)):
                    m.next = "FETCH"
            with m.Elif(~known & ~source.polling & (notified | (source.used & ~fresh))):
                m.d.comb += ahead.poll.valid.eq(1)
                with m.If(ahead.poll.ready):
                    m.d.sync += [source.polling.eq(1), turn.dirty.eq(1), item.valid.eq(0)]
                    m.d.comb += first.ready.eq(item.waits)
            with m.Elif(known & grants.wants):
                m.d.sync += [item.valid.eq(0), source.waits.eq(1), turn.dirty.eq(1)]
                m.d.comb += wait.valid.eq(~source.waits)
            with m.Else():
                m.d.sync += item.valid.eq(0)
                m.d.comb += first.ready.eq(item.waits)
            with m.If(first.ready):
                m.d.sync += [source.waits.eq(0), turn.dirty.eq(1)]

    def _merge(self, m: Module, turn, ahead) -> None:
        """What the turn has brought about goes into the row, which who answers may have changed."""
        access, source = self.access, turn.source
        # END: takes the row for itself if there is something to change in it; ends with the row, or
        # at once.
        with m.State("END"):
            m.d.comb += [
                access.take.eq(turn.dirty),
                access.leave.eq(~turn.dirty),
            ]
            with m.If(access.taken):
                m.next = "MERGE"
            with m.Elif(~turn.dirty):
                m.next = "IDLE"
        # MERGE: keeps what others may have written; one cycle.
        with m.State("MERGE"):
            m.d.sync += [
                source.eq(access.row),
                source.tail.eq(source.tail),
                source.polling.eq(source.polling),
                source.waits.eq(source.waits),
            ]
            with m.If(turn.polled):
                m.d.sync += source.newer.eq(0)
            # An index that was read later, for a request that waits for what it says, stays.
            with m.If(turn.polled & ~access.row.newer):
                m.d.sync += source.available.eq(source.available)
            m.next = "PUT"
        emptied, spent = Signal(), Signal.like(turn.added)
        m.d.comb += [
            emptied.eq((source.count == 0) & (turn.added != 0)),
            spent.eq(Mux(turn.demanded, 0, turn.added)),
        ]
        # PUT: gives the row back, with the new lines; ends when it is taken. The list may have
        # become empty: then it begins with them.
        with m.State("PUT"):
            m.d.comb += [
                access.put.eq(1),
                access.changed.count.eq(source.count + turn.added),
                access.changed.late.eq(Mux(source.late < spent, 0, source.late - spent)),
            ]
            with m.If(emptied):
                m.d.comb += [
                    access.changed.head.eq(turn.begin),
                    access.changed.seen.eq(self.epoch),
                ]
            with m.If(access.ready):
                m.next = "IDLE"
                with m.If(turn.more):
                    m.d.sync += ahead.more.valid.eq(1)
                    m.next = "LIST"

    def _demand(self, m: Module, turn) -> None:
        """What the source gets for which a request waits."""
        there = ~turn.again & turn.listed.any()  # it is asked for already
        # DEMAND: asks for the WQE that a request waits for, or says that no line is free. It may
        # have been asked for just before. Ends with the job, or with what is said.
        with m.State("DEMAND"):
            m.d.comb += self.job.valid.eq((turn.again | self.spare_valid) & self.room & ~there)
            with m.If(there):
                m.d.comb += [self.demand.ready.eq(1), self.access.leave.eq(1)]
                m.next = "IDLE"
            with m.Elif(self.job.valid & self.job.ready):
                m.d.comb += self.demand.ready.eq(1)
                m.d.sync += turn.more.eq(1)
                with m.If(~turn.again):
                    self._append(m, turn)
                    m.d.sync += [turn.added.eq(1), turn.begin.eq(self.spare)]
                m.next = "PUT"
            with m.Elif(~turn.again & (self.free == 0)):
                m.d.comb += [self.starved.eq(1), self.access.leave.eq(1)]
                m.next = "IDLE"
