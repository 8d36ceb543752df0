"""What an answer of the fetch engine means to its QP's row."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.ports.jobs import FetchStatus, SendFetched
from hdl.ports.rows import QpAck, QpFetch, QpTx

from .fetch_turn import is_newer
from .prefetch_window import log2_ahead

__all__ = ["AnswerFacts", "FetchAnswer"]


class AnswerFacts(data.Struct):
    """An answer, compared with the row that it is for."""

    good: 1  # there is a WQE, valid or not,
    fresh: 1  # at the position that is expected next, which has been asked for
    empty: 1  # there is none at its position,
    inside: 1  # which has been asked for and not answered
    poll: 1  # only the avail index was asked for
    newer: 1  # it tells a newer index,
    same: 1  # or the one that is known
    more: 1  # so few are under way that more should be asked for
    serves: 1  # the QP may go on fetching
    onward: 16  # the position behind the answer's
    ahead: 3  # of the row from now on: log2 of how many may be under way,
    reading: 1  # and whether READs are among them


class FetchAnswer(wiring.Component):
    """Compares an answer with its QP's row, a cycle after the row came.

    Position and indices are compared where they are short to compare; the differences, which only
    an odd answer needs, come in the same cycle and are used a cycle later. Members: ``answer``,
    which stays; ``fetch``, ``tx``, ``ack``: the rows as the tables show them; ``row`` and
    ``oldest``: the first of them, and the position of ``ack``, a cycle later. ``eligible``: see
    ``eligibility``, with the rows as the tables show them. ``half``: see ``FetchTurn``. ``o``:
    ``newer`` and ``inside`` are valid 2 cycles after the rows, all else 1. Latency: 1 cycle.
    Throughput: one answer at a time. Errors: none. Reset: none needed.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "answer": In(SendFetched),
                "fetch": In(QpFetch),
                "row": In(QpFetch),
                "oldest": In(16),
                "tx": In(QpTx),
                "ack": In(QpAck),
                "eligible": In(1),
                "half": In(8),
                "o": Out(AnswerFacts),
            }
        )

    def elaborate(self, platform):
        m = Module()
        answer, fetch, row, facts = self.answer, self.fetch, self.row, self.o
        # Distances from the oldest WQE to the index it tells and to the known one; and from the
        # row's position to its own.
        answered, known, place = Signal(16), Signal(16), Signal(16)
        under_way = Signal(8)  # never as many as this can count
        expected, all_asked, same_index, none = Signal(4), Signal(4), Signal(4), Signal(4)
        serves, reads_left = Signal(), Signal()  # some of the QP's READs have not finished
        m.d.sync += [
            facts.good.eq(
                (answer.status == FetchStatus.OK) | (answer.status == FetchStatus.WQE_ERROR)
            ),
            facts.empty.eq(answer.status == FetchStatus.EMPTY),
            facts.poll.eq(answer.poll),
            facts.onward.eq(answer.position + 1),
            answered.eq(answer.available - self.oldest),
            known.eq(row.available - self.oldest),
            place.eq(answer.position - row.position),
            under_way.eq(fetch.asked[:8] - fetch.position[:8]),
            serves.eq(self.eligible),
            expected.eq(_alike(answer.position, fetch.position)),
            all_asked.eq(_alike(fetch.available, fetch.asked)),
            none.eq(_alike(fetch.position, fetch.asked)),
            same_index.eq(_alike(answer.available, fetch.available)),
            reads_left.eq(self.tx.reads != self.ack.reads),
        ]
        m.d.comb += [
            facts.newer.eq(is_newer(self._config, answered, known)),
            facts.serves.eq(serves),
            # An answer from before a rewind may have the right position, but nobody expects it.
            facts.fresh.eq(serves & expected.all() & ~none.all()),
            facts.same.eq(same_index.all()),
            facts.inside.eq(~place[8:].any() & (place[:8] < under_way)),
            # Half of what may be under way is asked for at a time.
            facts.more.eq((under_way <= self.half) & ~all_asked.all()),
            facts.ahead.eq(
                log2_ahead(m, self._config, answer.wqe.length, answer.wqe.operation.data)
            ),
            facts.reading.eq(answer.wqe.operation.data | (row.reading & reads_left)),
        ]
        return m


def _alike(one: Value, other: Value) -> Value:
    """Where two positions are the same, in four parts: all of it would be late in the cycle."""
    return Cat(one.word_select(n, 4) == other.word_select(n, 4) for n in range(4))
