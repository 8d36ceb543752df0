"""Reads of pushed elements, in the place of host reads."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .types import ENTRIES, PIECES, PUSHED_FUNCTION, ROW_BITS, Entry

__all__ = ["PushReads"]


class PushReads(wiring.Component):
    """Passes a read client's requests on to the host, and answers those of pushed elements itself.

    Members: ``client`` In, ``host`` Out; ``row`` Out: reads the store. A request with
    ``PUSHED_FUNCTION`` reads the element of the entry that its address names; its beats come
    ``in_a_row``. ``released``, with ``release`` (a cycle): its last beat is here.
    Answers come in the order of requests: one of either kind is asked for when those of the other
    kind have come. Latency: of the host's none; of the store's 1 cycle. Throughput: a beat a cycle.
    Errors: those of the host. Reset: nothing is asked for.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "client": In(ReadClient(config.width)),
                "host": Out(ReadClient(config.width)),
                "row": Out(TableRead(ceil_log2(ENTRIES * PIECES), ROW_BITS)),
                "in_a_row": Out(1),
                "release": Out(1),
                "released": Out(Entry),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, asked = self._config.width, self.client.req.payload
        lanes = ceil_log2(self._config.bytes_per_beat)
        per_row = ROW_BITS // width
        # At most as many as reads of elements: each has a beat.
        under_way = Signal(10)
        beats = Signal(range(PIECES * per_row + 1))  # of the pushed element, still to be read
        at = Signal(range(PIECES * per_row))
        entry = Signal(Entry, reset_less=True)
        pushed, begins, comes, last = Signal(), Signal(), Signal(), Signal()
        place = Signal(range(per_row))  # of the beat in its row
        m.d.comb += pushed.eq(asked.function == PUSHED_FUNCTION)
        # Requests.
        m.d.comb += [
            self.host.req.payload.eq(asked),
            self.host.req.valid.eq(self.client.req.valid & ~pushed & (beats == 0)),
            begins.eq(self.client.req.valid & pushed & (under_way == 0) & (beats == 0)),
            self.client.req.ready.eq((self.host.req.ready & ~pushed & (beats == 0)) | begins),
        ]
        asks = self.host.req.valid & self.host.req.ready
        answered = self.host.rsp.valid & self.host.rsp.payload.last
        m.d.sync += under_way.eq(under_way + asks - answered)
        require(m, platform, ~(comes & self.host.rsp.valid), "answers come one at a time")
        # Beats of the store: the first with the request.
        number, of = Signal(range(PIECES * per_row)), Signal(Entry)
        count = (asked.length + (self._config.bytes_per_beat - 1)) >> lanes
        reads = begins | (beats != 0)
        left = Mux(begins, count, beats)
        ends = reads & (left == 1)
        m.d.comb += [
            number.eq(Mux(begins, 0, at)),
            of.eq(Mux(begins, asked.addr, entry)),
            self.row.enable.eq(reads),
            self.row.index.eq(Cat(number[ceil_log2(per_row) :], of)),
        ]
        first = Signal()
        m.d.sync += [comes.eq(reads), place.eq(number), first.eq(begins), last.eq(ends)]
        # The length is long to look at, so the entry is free a cycle later.
        m.d.comb += [self.in_a_row.eq(comes), self.release.eq(last), self.released.eq(entry)]
        with m.If(reads):
            m.d.sync += [beats.eq(left - 1), at.eq(number + 1), entry.eq(of)]
        # Answers.
        m.d.comb += [
            self.client.rsp.valid.eq(self.host.rsp.valid),
            self.client.rsp.payload.eq(self.host.rsp.payload),
        ]
        with m.If(comes):
            m.d.comb += [
                self.client.rsp.valid.eq(1),
                self.client.rsp.payload.data.eq(self.row.row.word_select(place, width)),
                self.client.rsp.payload.first.eq(first),
                self.client.rsp.payload.last.eq(last),
                self.client.rsp.payload.error.eq(0),
            ]
        return m
