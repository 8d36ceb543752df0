"""Takes lines back from receive sources: lists that are dropped, in time or on demand."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.epoch import Epoch
from hdl.config import NicConfig
from hdl.ports.jobs import WQE_LINE_BITS, DropQueue
from hdl.ports.tables import TableRead

from .recv_lines import sinks_of
from .recv_sources import SourceAccess, SourceRow

__all__ = ["Reason", "Reclaim", "RecvReclaim"]


class Reason(enum.Enum, shape=2):
    """Why the list of a source is dropped."""

    POSITION = 0  # it is asked for another position
    LINE = 1  # a request needs a line: some source's list
    RESET = 2  # its queue is reset
    TIME = 3  # nobody has asked for it


class Reclaim(data.Struct):
    """Drop the list of ``source`` (POSITION), or of the next source that has one (LINE)."""

    source: 14
    reason: Reason


class RecvReclaim(wiring.Component):
    """Drops lists of lines: for a request, for a queue that is reset, and for what is old.

    Lines of a source that nobody has asked for are dropped after one to three epochs of 65536
    cycles, in a sweep of all lines when an epoch ends. A request that finds no free line takes
    those of another source, in turn.

    Members: ``i``: taken when it is done (with LINE also when a line is free). ``queue_reset``:
    taken when ``still`` says that nothing is under way, and its list is gone. ``forgotten``
    (a cycle): then nothing that was read ahead is valid any more. ``kept`` with ``kept_valid``: a
    source whose list stays, as a request waits for its line. ``dropping``: a list is being dropped.
    ``access``, ``linked``, ``owner``: of RecvSources. ``release`` of ``released``, in a cycle of
    ``room``; ``sweep``, ``swept``, ``free``: of RecvLines. ``epoch``: the current one of four.
    Latency: 5 cycles, and 2 for each line. Errors: none. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        line = WQE_LINE_BITS
        super().__init__(
            {
                "i": In(stream.Signature(Reclaim)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "still": In(1),
                "forgotten": Out(1),
                "kept": In(14),
                "kept_valid": In(1),
                "dropping": Out(1),
                "access": Out(SourceAccess()),
                "linked": Out(TableRead(line, line)),
                "owner": Out(TableRead(line, 14)),
                "release": Out(1),
                "released": Out(line),
                "room": In(1),
                "sweep": Out(line),
                "swept": In(1),
                "free": In(line),
                "epoch": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, access = self._config, self.access
        lines = config.recv_lines - sinks_of(config.recv_lines)
        source, reason = Signal(SourceRow, reset_less=True), Signal(Reason)
        pair = Signal(14, reset_less=True)
        reset_pair = Signal(16)
        m.d.comb += [
            reset_pair.eq(self.queue_reset.payload.queue - config.sq_queue(0)),
            self.linked.index.eq(source.head),
            self.released.eq(source.head),
            self.owner.index.eq(self.sweep),
            access.changed.eq(source),
            access.changed.given.eq(0),
        ]

        m.submodules.epoch = epochs = Epoch()
        unswept = Signal(range(lines + 1))  # lines whose sources are still to be looked at
        looked = Signal(2)  # how long ``sweep`` has been the same; then ``swept`` is of it
        m.d.sync += [self.epoch.eq(self.epoch + epochs.ends), looked.eq(Cat(1, looked))]

        def sweep_on():
            m.d.sync += [self.sweep.eq(Mux(self.sweep == lines - 1, 0, self.sweep + 1))]
            m.d.sync += looked.eq(0)

        def take(index):
            m.d.comb += [access.take.eq(1), access.source.eq(index)]
            m.d.sync += pair.eq(index)
            with m.If(access.taken):
                m.next = "LOAD"

        with m.FSM(name="reclaim"):
            # IDLE: waits for a list to drop; else looks at the next line of a sweep.
            with m.State("IDLE"):
                m.d.sync += reason.eq(Reason.TIME)
                with m.If(self.i.valid):
                    m.d.sync += reason.eq(self.i.payload.reason)
                    m.next = "HUNT"
                    with m.If(self.i.payload.reason == Reason.POSITION):
                        m.next = "IDLE"
                        take(self.i.payload.source)
                with m.Elif(self.queue_reset.valid & self.still):
                    m.d.sync += reason.eq(Reason.RESET)
                    with m.If(reset_pair[15] | ~reset_pair[0]):
                        m.next = "FORGET"  # no receive queue
                    with m.Else():
                        take(reset_pair[1:15])
                with m.Elif((unswept != 0) & looked[1]):
                    m.d.comb += self.owner.enable.eq(1)
                    m.d.sync += unswept.eq(unswept - 1)
                    sweep_on()
                    with m.If(self.swept):
                        m.next = "OWNER"
            # HUNT: looks for a line in somebody's list; ends as well when a line is free.
            with m.State("HUNT"):
                m.d.comb += self.owner.enable.eq(1)
                with m.If(looked[1]):
                    sweep_on()
                with m.If(self.free != 0):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "IDLE"
                with m.Elif(looked[1] & self.swept):
                    m.next = "OWNER"
            # OWNER: takes the row of the source in whose list the line is.
            with m.State("OWNER"):
                take(self.owner.row)
            # LOAD: keeps the row.
            with m.State("LOAD"):
                m.d.sync += source.eq(access.row)
                m.next = "JUDGE"
            # JUDGE: a list that somebody asked for lately, or waits for, stays.
            with m.State("JUDGE"):
                fresh = (self.epoch - source.seen)[:2] < 2
                mine = self.kept_valid & (self.kept == pair)
                m.next = "DROP"
                with m.If((reason == Reason.TIME) & (fresh | mine)):
                    m.d.comb += access.leave.eq(1)
                    m.next = "IDLE"
                with m.If((reason == Reason.TIME) | (reason == Reason.LINE)):
                    m.d.sync += [source.used.eq(0), source.share.eq(0)]
            # DROP: gives back the first line; ends when there is none.
            with m.State("DROP"):
                m.d.comb += [
                    self.dropping.eq(1),
                    self.release.eq((source.count != 0) & self.room),
                    self.linked.enable.eq(1),
                ]
                with m.If(source.count == 0):
                    m.next = "PUT"
                    with m.If(reason == Reason.RESET):
                        m.d.sync += [source.eq(0), source.waits.eq(source.waits)]
                with m.Elif(self.room):
                    m.d.sync += source.count.eq(source.count - 1)
                    m.next = "NEXT"
            # NEXT: the line behind it is the first.
            with m.State("NEXT"):
                m.d.sync += [source.head.eq(self.linked.row), source.first.eq(source.first + 1)]
                m.next = "DROP"
            # PUT: gives the row back, and says that it is done.
            with m.State("PUT"):
                m.d.comb += access.put.eq(1)
                with m.If(access.ready):
                    m.next = "IDLE"
                    m.d.comb += self.i.ready.eq(
                        (reason == Reason.POSITION) | (reason == Reason.LINE)
                    )
                    with m.If(reason == Reason.RESET):
                        m.next = "FORGET"
            # FORGET: what was read ahead of the queue is not valid any more.
            with m.State("FORGET"):
                m.d.comb += [self.forgotten.eq(1), self.queue_reset.ready.eq(1)]
                m.next = "IDLE"
        with m.If(epochs.ends):
            m.d.sync += unswept.eq(lines)
        return m
