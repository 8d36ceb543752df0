"""A request for a receive WQE, and what its source has at hand for it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.address import mask
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.jobs import QueueErrorCause, RecvFetched, RecvRequest
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QueueRow
from hdl.ports.sources import queue_of

from .path import Tag
from .sources import SourceRow

__all__ = ["RecvFacts", "RecvMatch", "RecvWork", "UpcomingSource", "answer_fault"]


class RecvWork(data.Struct):
    """The request, its source as it was lent, and the answer."""

    request: RecvRequest
    number: QpNumber  # of its source
    source: SourceRow
    queue: QueueRow
    answer: RecvFetched
    again: 1  # its line is in the list already
    early: 1  # no request yet: it is looked up for one that is to come
    cause: QueueErrorCause  # of a broken ring


class UpcomingSource(data.Struct):
    """A request is to come for the source ``number``."""

    valid: 1
    number: QpNumber


class RecvFacts(data.Struct):
    """What is known of a source and of what is asked of it."""

    here: 1  # there is a list
    ready: 1  # and its first WQE lies in its line
    held: 1  # which is the one that is asked for again
    known: 1  # something is available at the source's position


def answer_fault(answer, fault) -> list:
    """Assign to the answer of a request what became of the line that it waited for (``Arrival``):
    an error, with what could be read of the WQE."""
    names = ("num_sge", "wr_id", "length")
    return [
        answer.status.eq(fault.found.status),
        answer.error.eq(fault.found.error),
        answer.head.eq(fault.head),
        *(answer.wqe[name].eq(fault.found.wqe[name]) for name in names),
    ]


class RecvMatch(wiring.Component):
    """Compares a source's row with the tag of the first line of its list, and with a request.

    Members: ``head`` of the WQE that a request asks for again; ``number`` of the source;
    ``source``: its row; ``size_log2`` of its ring; ``tag``: of the first line, a RAM's output;
    ``filled``: that line holds a WQE, and is not being written, valid with ``o``.
    Latency: ``o`` a cycle after its inputs, as all of it is long. Throughput: one a cycle.
    Errors: none. Reset: none needed.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "head": In(16),
                "number": In(QpNumber),
                "source": In(SourceRow),
                "size_log2": In(4),
                "tag": In(Tag),
                "filled": In(1),
                "o": Out(RecvFacts),
            }
        )

    def elaborate(self, platform):
        m = Module()
        source, facts = self.source, self.o
        # What is available, less one: from 1 to the queue's size means no bit beyond it.
        available = Signal(16)
        sought, same = Signal(11), Signal(6)  # in pieces: a RAM's output is late
        m.d.sync += [
            available.eq(source.available + ~source.first),
            sought.eq(
                ~unequal(
                    Cat(self.tag.queue, self.tag.position),
                    Cat(queue_of(self._config, self.number), source.first),
                )
            ),
            same.eq(~unequal(self.tag.head, self.head)),
            facts.here.eq(source.count != 0),
        ]
        m.d.comb += [
            facts.known.eq((available & ~mask(self.size_log2)) == 0),
            facts.ready.eq(facts.here & self.filled & sought.all()),
            facts.held.eq(same.all() & source.held & facts.here),
        ]
        return m
