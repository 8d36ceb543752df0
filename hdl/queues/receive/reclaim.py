"""Takes lines back from receive sources: lists that are dropped, in time or on demand."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.epoch import Epoch
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.jobs import WQE_LINE_BITS, DropQueue
from hdl.ports.numbers import QpNumber
from hdl.ports.sources import place_of

from .lines import refetch_lines
from .sources import SourceAccess, SourceRow

__all__ = ["Reason", "RecvReclaim"]


class Reason(enum.Enum, shape=2):
    """Why the list of a source is dropped."""

    LINE = 0  # a request needs a line: some source's list
    RESET = 1  # its queue is reset
    TIME = 2  # nobody has asked for it


class _Sweep:
    """A look at one line after the other."""

    def __init__(self, lines: int):
        self._last = lines - 1
        self.line = Signal(WQE_LINE_BITS, name="sweep_line")
        self.left = Signal(range(lines + 1), name="sweep_left")  # lines to look at
        self.looked = Signal(2, name="sweep_looked")  # how long ``line`` is; then ``swept`` is its

    def go_on(self, m: Module) -> None:
        """To the next line."""
        m.d.sync += [
            self.line.eq(Mux(self.line == self._last, 0, self.line + 1)),
            self.looked.eq(0),
        ]


class RecvReclaim(wiring.Component):
    """Drops lists of lines: for a request, for a queue that is reset, and for what is old.

    Lines of a source that nobody has asked for are dropped after one to three epochs of 65536
    cycles, in a sweep of all lines when an epoch ends. A request that finds no free line takes
    those of another source, in turn.

    Members: ``line_needed``: drop the list of the next source that has one; ``line_freed`` (a
    cycle): it is done, or a line is free. ``queue_reset``: taken when ``still`` says that nothing
    is under way, and its list is gone; the source goes on at its position. ``stop``: one waits, of
    the queue at place ``stopped`` (``place_of``). ``forgotten``
    (a cycle): then nothing that was read ahead is valid any more. ``kept`` with ``kept_valid``: a
    source whose list stays, as a request waits for its line. ``dropping``: a list is being dropped.
    ``access``, ``linked``, ``owner``: of RecvSources. ``release`` of ``released``, in a cycle of
    ``room``; ``sweep``, ``swept``, ``free``: of RecvLines. ``epoch``: the current one of four.
    Latency: 6 cycles, and 2 for each line. Errors: none. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        line = WQE_LINE_BITS
        super().__init__(
            {
                "line_needed": In(1),
                "line_freed": Out(1),
                "queue_reset": In(stream.Signature(DropQueue)),
                "still": In(1),
                "stop": Out(1),
                "stopped": Out(16),
                "forgotten": Out(1),
                "kept": In(QpNumber),
                "kept_valid": In(1),
                "dropping": Out(1),
                "access": Out(SourceAccess()),
                "linked": Out(TableRead(line, line)),
                "owner": Out(TableRead(line, QpNumber)),
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
        lines = self._config.recv_lines - refetch_lines(self._config.recv_lines)
        source, reason = Signal(SourceRow, reset_less=True), Signal(Reason)
        number = Signal(QpNumber, reset_less=True)  # of the source
        m.submodules.epoch = epochs = Epoch()
        sweep = _Sweep(lines)
        before = Signal(2, init=3)  # the epoch before
        m.d.sync += sweep.looked.eq(Cat(1, sweep.looked))
        with m.If(epochs.ends):
            m.d.sync += [self.epoch.eq(self.epoch + 1), before.eq(self.epoch)]
        m.d.comb += [
            self.sweep.eq(sweep.line),
            self.owner.index.eq(sweep.line),
            self.linked.index.eq(source.head),
            self.released.eq(source.head),
            self.access.source.eq(number),
            self.access.changed.eq(source),
            self.access.changed.given.eq(0),
            self.access.changed.held.eq(0),
        ]
        with m.FSM(name="reclaim"):
            self._choose(m, sweep, number, reason)
            # TAKE: takes the source's row; ends when it is lent.
            with m.State("TAKE"):
                m.d.comb += self.access.take.eq(1)
                with m.If(self.access.taken):
                    m.next = "LOAD"
            # LOAD: keeps the row; one cycle.
            with m.State("LOAD"):
                m.d.sync += source.eq(self.access.row)
                m.next = "JUDGE"
            self._drop(m, source, number, reason, before)
            # FORGET: what was read ahead of the queue is not valid any more; one cycle.
            with m.State("FORGET"):
                m.d.comb += [self.forgotten.eq(1), self.queue_reset.ready.eq(1)]
                m.next = "IDLE"
        with m.If(epochs.ends):
            m.d.sync += sweep.left.eq(lines)
        return m

    def _choose(self, m: Module, sweep, number, reason) -> None:
        """Whose list is dropped next."""
        place = self.stopped
        m.d.sync += [
            place.eq(place_of(self._config, self.queue_reset.payload.queue)),
            self.stop.eq(self.queue_reset.valid & ~self.queue_reset.ready),
        ]
        # IDLE: looks at the next line of a sweep; ends with the line of a list, or when a request
        # needs a line or a queue is reset.
        with m.State("IDLE"):
            m.d.sync += reason.eq(Reason.TIME)
            with m.If(self.line_needed):
                m.d.sync += reason.eq(Reason.LINE)
                m.next = "HUNT"
            with m.Elif(self.stop & self.still):
                m.d.sync += [reason.eq(Reason.RESET), number.eq(place[1:15])]
                m.next = "TAKE"
                with m.If(place[15] | ~place[0]):
                    m.next = "FORGET"  # no receive queue
            with m.Elif((sweep.left != 0) & sweep.looked[1]):
                m.d.comb += self.owner.enable.eq(1)
                m.d.sync += sweep.left.eq(sweep.left - 1)
                sweep.go_on(m)
                with m.If(self.swept):
                    m.next = "OWNER"
        # HUNT: looks for a line in somebody's list; ends as well when a line is free.
        with m.State("HUNT"):
            m.d.comb += self.owner.enable.eq(1)
            with m.If(sweep.looked[1]):
                sweep.go_on(m)
            with m.If(self.free != 0):
                m.d.comb += self.line_freed.eq(1)
                m.next = "IDLE"
            with m.Elif(sweep.looked[1] & self.swept):
                m.next = "OWNER"
        # OWNER: the source in whose list the line is; one cycle.
        with m.State("OWNER"):
            m.d.sync += number.eq(self.owner.row)
            m.next = "TAKE"

    def _drop(self, m: Module, source, number, reason, before) -> None:
        """A list is dropped, or stays."""
        # JUDGE: a list that somebody asked for lately, or waits for, stays. When it goes, its
        # source goes on behind the WQE that a message holds; one cycle.
        with m.State("JUDGE"):
            fresh = (source.seen == self.epoch) | (source.seen == before)
            mine = self.kept_valid & (self.kept == number)
            m.next = "DROP"
            with m.If((reason == Reason.TIME) & (fresh | mine)):
                m.d.comb += self.access.leave.eq(1)
                m.next = "IDLE"
            m.d.sync += [
                source.used.eq(0),
                source.share.eq(0),
                source.first.eq(source.first + source.held),
            ]
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
                    position = self.queue_reset.payload.position
                    m.d.sync += [
                        source.eq(0),
                        source.waits.eq(source.waits),
                        source.first.eq(position),
                        source.available.eq(position),
                    ]
            with m.Elif(self.room):
                m.d.sync += source.count.eq(source.count - 1)
                m.next = "NEXT"
        # NEXT: the line behind it is the first; one cycle.
        with m.State("NEXT"):
            m.d.sync += source.head.eq(self.linked.row)
            m.next = "DROP"
        # PUT: gives the row back, and says that it is done; ends when the row is taken.
        with m.State("PUT"):
            m.d.comb += self.access.put.eq(1)
            with m.If(self.access.ready):
                m.next = "IDLE"
                m.d.comb += self.line_freed.eq(reason == Reason.LINE)
                with m.If(reason == Reason.RESET):
                    m.next = "FORGET"
