"""What a request for a receive WQE waits for while its source's row is given back."""

from amaranth.hdl import Module
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.contract import require
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import WQE_LINE_BITS

from ..ring.index import AvailIndex, IndexResult, named_index
from ..ring.read import BlockReader
from .match import RecvWork
from .path import Arrival
from .prefetch import Demand

__all__ = ["Awaited", "RecvAwaited"]


class Awaited(enum.Enum, shape=2):
    """What has to come before a request can be looked up again."""

    NOTHING = 0
    LINE = 1  # the fetch into the first line of the source's list
    INDEX = 2  # the source's avail index, which is read anew
    FETCH = 3  # a fetch of the source's first WQE, which is to begin


class RecvAwaited(wiring.Component):
    """Waits for one thing at a time, and keeps what came of it.

    Members: ``work``: the request, which stays as it is until ``over``; ``asks`` In: what it waits
    for from the next cycle on. ``over`` Out: that has come; ``taken`` In: the request is looked up
    again. ``new`` In: a request is taken, and all is forgotten that came for the one before.
    ``found`` with ``found_valid`` Out: the index that was read, until ``used`` In. ``fault`` with
    ``fault_valid`` Out: the line that was waited for got no WQE, until another fetch is awaited.
    ``waits`` with ``wanted`` Out: a line is waited for; ``wanted_done`` In: no fetch into it is
    under way. ``arrived``, ``arrived_valid``, ``good`` In: what became of a fetch. ``demand``,
    ``starved``: of RecvPrefetch; ``line_needed``, ``line_freed``: of RecvReclaim.
    Latency: ``over`` in the cycle in which what is awaited has come, or behind the one in which a
    fetch has begun. Throughput: one at a time.
    Errors: in ``found`` and ``fault``. Reset: nothing is awaited.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        line = WQE_LINE_BITS
        super().__init__(
            {
                "work": In(RecvWork),
                "asks": In(Awaited),
                "over": Out(1),
                "found": Out(IndexResult),
                "fault": Out(Arrival),
                "wanted": Out(line),
                "arrived": In(Arrival),
                "demand": Out(stream.Signature(Demand)),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
            | {name: In(1) for name in ("taken", "new", "used", "wanted_done", "arrived_valid")}
            | {name: In(1) for name in ("good", "starved", "line_freed")}
            | {name: Out(1) for name in ("found_valid", "fault_valid", "waits", "line_needed")}
        )

    def elaborate(self, platform):
        m = Module()
        work = self.work
        m.submodules.index = index = AvailIndex(config=self._config)
        m.submodules.reader = reader = BlockReader(width=self._config.width, size=8)
        connect(m, index.block, reader.i)
        connect(m, reader.o, index.block_data)
        connect(m, reader.read_client, flipped(self.read_client))
        connect(m, index.write_client, flipped(self.write_client))
        m.d.comb += [
            *named_index(
                self._config,
                index.i.payload,
                work.request.function,
                work.queue,
                work.source.first,
            ),
            self.demand.payload.source.eq(work.number),
            self.demand.payload.again.eq(work.again),
        ]
        with m.If(self.arrived_valid & self.waits & (self.arrived.line == self.wanted)):
            m.d.sync += self.fault.eq(self.arrived)
            m.d.sync += self.fault_valid.eq(self.arrived.reported & ~self.good)
        with m.If(self.used):
            m.d.sync += self.found_valid.eq(0)
        with m.If(self.new):
            m.d.sync += [self.fault_valid.eq(0), self.found_valid.eq(0)]

        def ends() -> None:
            m.d.comb += self.over.eq(1)
            m.next = "OVER"
            with m.If(self.taken):
                m.next = "NOTHING"

        with m.FSM(name="awaited") as fsm:
            # NOTHING: nothing is awaited; ends when a request does.
            with m.State("NOTHING"):
                with m.Switch(self.asks):
                    with m.Case(Awaited.LINE):
                        m.d.sync += self.wanted.eq(work.source.head)
                        m.next = "LINE"
                    with m.Case(Awaited.INDEX):
                        m.next = "READ"
                    with m.Case(Awaited.FETCH):
                        m.d.sync += self.fault_valid.eq(0)
                        m.next = "FETCH"
            # LINE: ends when no fetch into the line is under way.
            with m.State("LINE"):
                m.d.comb += self.waits.eq(1)
                with m.If(self.wanted_done):
                    ends()
            # READ: has the avail index read; ends when that is taken.
            with m.State("READ"):
                m.d.comb += index.i.valid.eq(1)
                with m.If(index.i.ready):
                    m.next = "INDEX"
            # INDEX: ends with the index.
            with m.State("INDEX"):
                m.d.comb += index.o.ready.eq(1)
                with m.If(index.o.valid):
                    m.d.sync += [self.found.eq(index.o.payload), self.found_valid.eq(1)]
                    ends()
            # FETCH: ends when the fetch has begun, or no line is free for it.
            with m.State("FETCH"):
                m.d.comb += self.demand.valid.eq(1)
                with m.If(self.starved):
                    m.next = "STARVED"
                with m.Elif(self.demand.ready):
                    m.next = "OVER"  # known late
            # STARVED: has another source's lines taken for it; ends when one is free.
            with m.State("STARVED"):
                m.d.comb += self.line_needed.eq(1)
                with m.If(self.line_freed):
                    ends()
            # OVER: it has come; ends when the request is looked up again.
            with m.State("OVER"):
                m.d.comb += self.over.eq(1)
                with m.If(self.taken):
                    m.next = "NOTHING"
        asks = self.asks != Awaited.NOTHING
        require(m, platform, ~asks | fsm.ongoing("NOTHING"), "one thing is awaited at a time")
        return m
