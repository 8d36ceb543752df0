"""What the source of a request has at hand for it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.address import mask
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.jobs import FetchRequest

from .recv_path import Tag
from .recv_sources import SourceRow

__all__ = ["RecvFacts", "RecvMatch"]


class RecvFacts(data.Struct):
    """What is known of a request and its source."""

    here: 1  # the list begins with the WQE at its position
    ready: 1  # and that WQE lies in its line
    behind: 1  # the list has its position further behind
    known: 1  # something is available at its position
    best: 16  # the newer of the avail indices that are known


class RecvMatch(wiring.Component):
    """Compares a request with the row of its source and the tag of the first line of its list.

    Members: ``request``; ``position`` that is looked up; ``pair``: the source's number; ``source``:
    its row; ``size_log2`` of its ring; ``tag``: of the first line, a RAM's output; ``held``: that
    line holds a WQE, and is not being written, valid with ``o``.
    Latency: ``o`` a cycle after its inputs, as all of it is long. Throughput: one a cycle.
    Errors: none. Reset: none needed.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "request": In(FetchRequest),
                "position": In(16),
                "pair": In(14),
                "source": In(SourceRow),
                "size_log2": In(4),
                "tag": In(Tag),
                "held": In(1),
                "o": Out(RecvFacts),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, source, facts = self.request, self.source, self.o
        # What is available: told by the request, and known of its source. Both are less one: from 1
        # to the queue's size means no bit beyond it.
        told, known, outside = Signal(16), Signal(16), Signal(16)
        told_so = (told & outside) == 0
        m.d.sync += [
            told.eq(request.known + ~request.position),
            known.eq(source.available + ~request.position),
        ]
        m.d.comb += [
            outside.eq(~mask(self.size_log2)),
            facts.known.eq(told_so),
            facts.best.eq(request.known),
        ]
        with m.If(((known & outside) == 0) & (~told_so | (known > told))):
            m.d.comb += [facts.best.eq(source.available), facts.known.eq(1)]
        sought, here, offset = Signal(11), Signal(), Signal(16)  # in pieces: a RAM's output is late
        number = (self._config.rq_queue(0) + (self.pair << 1))[:16]
        m.d.sync += [
            sought.eq(~unequal(Cat(self.tag.queue, self.tag.position), Cat(number, self.position))),
            offset.eq(self.position - source.first),
            here.eq((self.position == source.first) & (source.count != 0)),
        ]
        m.d.comb += [
            facts.here.eq(here),
            facts.ready.eq(here & self.held & sought.all()),
            facts.behind.eq((offset < source.count) & (source.count != 0)),
        ]
        return m
