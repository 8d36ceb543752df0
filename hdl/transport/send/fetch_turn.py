"""How many of its WQEs a QP asks for in its turn."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import checked, require
from hdl.config import NicConfig
from hdl.ports.activations import SendFlags
from hdl.ports.rows import QpAck, QpCfg, QpFetch, QpTx

from .eligibility import limit_reads, repeats
from .prefetch_window import AHEAD

__all__ = ["BATCH", "FetchTurn", "is_newer"]

#: WQEs asked for in one turn.
BATCH = 8


class _Distances(data.Struct):
    """How far it is from one position or index to another, modulo 65536."""

    notified: 16  # from the oldest WQE to the index that the activation carries,
    known: 16  # to the one that is known,
    asked: 16  # and to the next one to ask for; negative: the QP has gone back behind it
    notified_unasked: 16  # WQEs up to these that have not been asked for
    known_unasked: 16
    under_way: 16  # WQEs asked for and not answered,
    unbegun: 16  # asked for and not begun; negative: some that have begun are to be sent again,
    begun: 16  # and so many
    pending: 16  # answered and not sent


def is_newer(config: NicConfig, notified: Value, known: Value) -> Value:
    """Whether the avail index ``notified`` is newer than the ``known`` one.

    Both are distances from the oldest WQE that has not ended, as the driver may use the places of
    those before it again. The newer one is further away, unless it is further than any ring is
    long."""
    return (notified <= config.queue_size) & (notified > known)


class FetchTurn(wiring.Component):
    """Works out what the QP at hand asks for, in three steps: distances, what is known, how many.

    WQEs are prefetched as far as their window allows (``prefetch_window``), unless more than that
    many wait to be sent. A QP that READs asks for no more than the requester can start
    (docs/transport.md). No QP asks for more than its share of the outstanding table, but for what
    has its entry already. The avail index is polled when all that is known has been asked for, and
    after a doorbell that does not carry it; once, until there is news.

    Members: ``cfg``, ``ack``, ``tx``, ``fetch``: the QP's rows as the tables show them; ``row`` and
    ``sent``, ``high`` and ``oldest``: the last one, and the positions of ``tx`` and of ``ack``, a
    cycle later. ``eligible``: nothing holds the QP (``eligibility``); ``drains``: only WQEs that
    have begun. ``share``: of the outstanding table. Steps, each for a cycle, the next one in the
    next cycle: ``take``, with the ``flags`` and the avail index ``notified`` of the activation;
    ``weigh``; ``decide``. With ``take``: ``needless``, a wake that means nothing to the QP. With
    ``weigh``: ``notified_row``, the row with what the activation tells; ``serves``, the turn goes
    on. From the cycle after ``decide`` on: ``count`` WQEs are asked for, from ``position`` on, by
    the avail index ``known``; ``poll``: the index is polled behind them; ``more``: the QP gets
    another turn; ``asked_row``: its row then. ``half``: of what may be prefetched, a cycle after
    the rows.

    Latency: 3 cycles. Throughput: one turn at a time. Errors: an index that cannot be true is left
    out. Reset: none needed.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "cfg": In(QpCfg),
                "ack": In(QpAck),
                "tx": In(QpTx),
                "fetch": In(QpFetch),
                "row": In(QpFetch),
                "sent": In(16),
                "high": In(16),
                "oldest": In(16),
                "eligible": In(1),
                "drains": In(1),
                "share": In(16),
                "flags": In(SendFlags),
                "notified": In(16),
                "take": In(1),
                "weigh": In(1),
                "decide": In(1),
                "needless": Out(1),
                "notified_row": Out(QpFetch),
                "serves": Out(1),
                "position": Out(16),
                "count": Out(range(BATCH + 1)),
                "known": Out(16),
                "poll": Out(1),
                "more": Out(1),
                "asked_row": Out(QpFetch),
                "half": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        row = self.row
        # What the activation says, and the distances.
        notified, carries, rings, blocked = Signal(16), Signal(), Signal(), Signal()
        reads, distances = Signal(8), Signal(_Distances)
        doorbell = (self.flags & SendFlags.DOORBELL) != 0
        wakes = (self.flags & SendFlags.WAKE) != 0
        again = (self.flags & SendFlags.AGAIN) != 0
        carries_now = (self.flags & SendFlags.NEXT) != 0
        # A wake is of interest to a QP that is blocked, that READs, or that has its share.
        waits = row.blocked | row.reading | row.capped
        m.d.comb += self.needless.eq((self.flags == SendFlags.WAKE) & ~waits)
        with m.If(self.take):
            m.d.sync += [
                notified.eq(self.notified),
                carries.eq(carries_now),
                rings.eq(doorbell & (~carries_now | wakes)),
                blocked.eq(row.blocked & ~wakes),
                self.serves.eq(self.eligible & (waits | doorbell | again)),
                self.position.eq(row.asked),
                distances.notified.eq(self.notified - self.oldest),
                distances.known.eq(row.available - self.oldest),
                distances.asked.eq(row.asked - self.oldest),
                distances.notified_unasked.eq(self.notified - row.asked),
                distances.known_unasked.eq(row.available - row.asked),
                distances.under_way.eq(row.asked - row.position),
                distances.unbegun.eq(row.asked - self.high),
                distances.begun.eq(self.high - row.asked),
                distances.pending.eq(row.position - self.sent),
                reads.eq(self.tx.reads - self.ack.reads),
            ]
        # The driver's word is believed only where it can be true and is news: it may be older than
        # what was read since.
        news, row_now = Signal(), self.notified_row
        m.d.comb += [
            news.eq(carries & is_newer(self._config, distances.notified, distances.known)),
            row_now.eq(row),
            row_now.available.eq(Mux(news, notified, row.available)),
            row_now.polled.eq(row.polled & ~news & ~rings),
            row_now.blocked.eq(blocked),
        ]
        room, startable, capped = self._limits(m, distances, reads)
        most = Mux(room < startable, room, startable)
        some = self._count(m, distances, most, news, rings)
        m.d.comb += self.asked_row.capped.eq(capped)
        if checked(platform):
            self._contract(m, platform, (distances, reads, some))
        return m

    def _contract(self, m: Module, platform, facts: tuple[Signal, ...]) -> None:
        """A QP whose turn is over, and which gets no other, waits for something that activates it
        again: an answer to what it has asked for, a WQE that the requester is to begin, a READ that
        is to end, or any WQE if it has its share. Or nothing is known that it has not asked for, or
        it is being drained."""
        distances, reads, some = facts
        decided, asked = Signal(), self.asked_row
        m.d.sync += decided.eq(self.decide)
        answers = asked.asked != asked.position
        begins = (distances.pending != 0) | (distances.unbegun != 0)
        # An index that cannot be true is left out until the next doorbell.
        nothing = ~some & (asked.polled | (asked.asked != asked.available))
        waits = self.more | self.poll | answers | begins | nothing | (reads != 0) | self.drains
        waits |= asked.capped & (distances.asked != 0)
        require(m, platform, ~decided | waits, "no QP sleeps that has WQEs to ask for")

    def _limits(self, m: Module, distances: Signal, reads: Signal) -> tuple[Signal, ...]:
        """How many may be asked for: by what is under way, and by the READs that may start or the
        QP's share of the outstanding table; and whether it has that."""
        row, config = self.row, self._config
        limits = Array([min(1 << n, config.send_lines) for n in range(AHEAD + 1)])
        limit, most_reads, drains = Signal(8), Signal(8), Signal()
        m.d.sync += [
            limit.eq(limits[self.fetch.ahead]),
            self.half.eq(Array(n // 2 + 1 for n in limits)[self.fetch.ahead]),
            most_reads.eq(self.cfg.max_rd_atomic),
            drains.eq(self.drains),
        ]
        room, startable = Signal(8), Signal(9)
        few = (row.ahead == AHEAD) | (distances.pending <= limit)
        # READs that have begun count already, and may be sent again whatever the limit is.
        again = distances.unbegun[15]
        crowded, capped = Signal(), Signal()
        m.d.comb += crowded.eq(~distances.asked[15] & (distances.asked >= self.share))
        with m.If(self.weigh):
            m.d.sync += [
                room.eq(Mux((distances.under_way < limit) & few, limit - distances.under_way, 0)),
            ]
            limit_reads(
                m,
                startable,
                reads=reads,
                most=most_reads,
                unbegun=distances.unbegun,
                begun=distances.begun,
            )
            with m.If(~row.reading & ~drains):
                m.d.sync += startable.eq(BATCH)
            with m.If(crowded & again):
                m.d.sync += startable.eq(repeats(distances.begun))
            with m.If((crowded | drains) & ~again):
                m.d.sync += startable.eq(0)
            m.d.sync += capped.eq(crowded)
        return room, startable, capped

    def _count(
        self, m: Module, distances: Signal, most: Value, news: Signal, rings: Signal
    ) -> Signal:
        """How many are asked for, at ``most``, and what follows from that. Returns whether any are
        known that have not been asked for."""
        unasked, some, exhausted = Signal(16), Signal(), Signal()
        polled, whole, asked = Signal(), Signal(), self.asked_row

        def possible(index: Value) -> Value:
            """Whether there is something before the index, and that not more than fits the ring."""
            most = self._config.queue_size
            return (index <= most) & ((distances.asked > most) | (distances.asked < index))

        with m.If(self.weigh):
            m.d.sync += [
                self.known.eq(self.notified_row.available),
                polled.eq(self.notified_row.polled),
                unasked.eq(Mux(news, distances.notified_unasked, distances.known_unasked)),
                # Of both, as ``news`` comes late.
                some.eq(
                    Mux(
                        news,
                        possible(distances.notified),
                        possible(distances.known),
                    )
                ),
                exhausted.eq(
                    Mux(
                        news,
                        distances.notified_unasked == 0,
                        rings | (distances.known_unasked == 0),
                    )
                ),
            ]
        # The position and a count of up to 16 more: whatever is carried is known before.
        low, behind = Signal(5), Signal(12, reset_less=True)
        m.d.sync += behind.eq(self.position[4:] + 1)
        m.d.comb += low.eq(self.position[:4] + self.count)
        limit = Signal(8)
        m.d.comb += limit.eq(most)
        fits = (unasked <= limit) & (unasked <= BATCH)
        with m.If(self.decide):
            # All that is known has been asked for then.
            m.d.sync += whole.eq((unasked == 0) | (some & fits))
            with m.If(~some):
                m.d.sync += self.count.eq(0)
            with m.Elif((unasked < limit) & (unasked < BATCH)):
                m.d.sync += self.count.eq(unasked)
            with m.Elif(limit < BATCH):
                m.d.sync += self.count.eq(limit)
            with m.Else():
                m.d.sync += self.count.eq(BATCH)
            # More than a turn's worth: again. More than may be under way: with an answer or a wake.
            m.d.sync += self.more.eq(some & (unasked > BATCH) & (limit > BATCH))
        m.d.comb += [
            self.poll.eq(~polled & (exhausted | whole)),
            asked.eq(self.row),
            asked.available.eq(self.known),
            asked.blocked.eq(0),
            asked.asked.eq(Cat(low[:4], Mux(low[4], behind, self.position[4:]))),
            asked.polled.eq(polled | self.poll),
        ]
        return some
