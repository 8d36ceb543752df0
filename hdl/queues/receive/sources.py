"""The table of receive sources: what has been fetched of each, and who works on it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.ram import Ram
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.jobs import WQE_LINE_BITS
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QueueRow
from hdl.ports.sources import queue_of

from .shares import SourceShare

__all__ = ["SourceAccess", "SourceRow", "RecvSources"]


class SourceRow(data.Struct):
    """The WQEs of a source in lines, at hand or on their way: ``count`` from position ``first`` on,
    a linked list from line ``head`` to line ``tail``. Without any, ``first`` is where the source
    goes on: what lies before has been given away, and never comes back."""

    first: 16
    count: WQE_LINE_BITS
    head: WQE_LINE_BITS
    tail: WQE_LINE_BITS
    available: 16  # avail index as far as known
    seen: 2  # epoch of the last request
    share: SourceShare
    used: 1  # it has been asked for since its lines were forgotten
    given: 1  # the first has been asked for, and may be again
    held: 1  # the first has been given to a message that goes on: the next is behind it
    polling: 1  # its avail index is being read
    waits: 1  # it is among those that wait for lines
    late: 4  # lines that it may have without waiting, as a request found none
    newer: 1  # ``available`` was read later than the index that is on its way (``polling``)


class SourceAccess(wiring.Signature):
    """The way to the rows, seen from a machine that works on one row at a time.

    ``take`` asks for the row of ``source``. With ``taken`` the machine has the row to itself from
    the next cycle on, in which ``row`` and ``queue`` (its virtqueue) hold. The machine gives the
    row back with ``leave``, or with ``put`` and ``changed`` in a cycle of ``ready``.
    ``held``: the machine has a row. With ``instead`` the row of ``other`` is meant, not that of
    ``source``: that may be known later than both.
    A ``shared`` row may be taken, and changed, by who answers as well. Who has one takes it once
    more, not shared, before changing it.
    """

    def __init__(self):
        super().__init__(
            {
                "take": Out(1),
                "shared": Out(1),
                "source": Out(QpNumber),
                "other": Out(QpNumber),
                "instead": Out(1),
                "taken": In(1),
                "held": In(1),
                "row": In(SourceRow),
                "queue": In(QueueRow),
                "put": Out(1),
                "changed": Out(SourceRow),
                "ready": In(1),
                "leave": Out(1),
            }
        )


class RecvSources(wiring.Component):
    """Rows of all receive sources, each lent to one machine at a time.

    The machines that answer requests, take lines back and prefetch work side by side on different
    sources, and one after the other on the same one; but who answers need not wait for a row that
    prefetch has shared.

    Members: ``answers``, ``reclaim``, ``prefetch``: ``SourceAccess``; the first goes first.
    ``link`` writes the line behind a line of a list, ``linked0`` and ``linked1`` read it; ``own``
    writes whose a line is, ``owner`` reads it. ``queue_read``: the rows of the virtqueues;
    ``other``: another reader of these, which goes before the machines. ``ready``: rows may be
    taken.
    Latency: 1 cycle from ``taken`` to ``row``. Throughput: one row is taken, and one put, a cycle.
    Errors: none. Reset: all rows are 0, after a cycle for each.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "answers": In(SourceAccess()),
                "reclaim": In(SourceAccess()),
                "prefetch": In(SourceAccess()),
                "link": In(TableWrite(WQE_LINE_BITS, WQE_LINE_BITS)),
                "linked0": In(TableRead(WQE_LINE_BITS, WQE_LINE_BITS)),
                "linked1": In(TableRead(WQE_LINE_BITS, WQE_LINE_BITS)),
                "own": In(TableWrite(WQE_LINE_BITS, QpNumber)),
                "owner": In(TableRead(WQE_LINE_BITS, QpNumber)),
                "other": In(TableRead(16, QueueRow)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        # What is read while the row is lent means nothing, and it is not written unless it is.
        m.submodules.rows = rows = Ram(shape=SourceRow, depth=config.qps, forward=False)
        m.submodules.links = links = Ram(
            shape=WQE_LINE_BITS, depth=config.recv_lines, reads=2, forward=False
        )
        m.submodules.owners = owners = Ram(shape=QpNumber, depth=config.recv_lines, forward=False)
        for write, outer in ((links.write, self.link), (owners.write, self.own)):
            m.d.comb += [
                write.index.eq(outer.index),
                write.row.eq(outer.row),
                write.enable.eq(outer.enable),
            ]
        for read, outer in (
            (links.read0, self.linked0),
            (links.read1, self.linked1),
            (owners.read0, self.owner),
        ):
            m.d.comb += [
                read.index.eq(outer.index),
                read.enable.eq(outer.enable),
                outer.row.eq(read.row),
            ]

        # Lending: one row a cycle.
        machines = (self.answers, self.reclaim, self.prefetch)
        lent = [Signal(name=f"lent{n}") for n in range(len(machines))]
        places = [Signal(QpNumber, name=f"place{n}", reset_less=True) for n in range(len(machines))]
        # Rows that prefetch shares are open to who answers. Who takes lines back waits for the end.
        shared = Signal()
        with m.If(self.prefetch.taken):
            m.d.sync += shared.eq(self.prefetch.shared)
        closed = [*lent[:2], lent[2] & ~shared]
        takes = [self.answers.take, self.reclaim.take & ~(lent[2] & shared), self.prefetch.take]
        # A row is read for whoever asks: whether it may be taken is known late.
        # The number of its queue is worked out for each row that may be meant, and then chosen.
        source, queue, read = Signal(QpNumber), Signal(16), Cat(takes).any()
        reading = self.other.enable
        for n, machine in reversed(list(enumerate(machines))):
            others = [k for k in range(len(machines)) if k != n]
            # Which of its two rows a machine means is known late: after they have been compared.
            meant = Mux(machine.instead, machine.other, machine.source)
            other, own = (queue_of(config, place) for place in (machine.other, machine.source))
            instead = machine.instead.replicate(len(queue))
            with m.If(takes[n]):
                # No Mux: Yosys would make one sum of the two, behind the choice.
                m.d.comb += [source.eq(meant), queue.eq((other & instead) | (own & ~instead))]
            first, second = (
                Cat(closed[k] & (places[k] == place) for k in others).any()
                for place in (machine.source, machine.other)
            )
            busy, before = Mux(machine.instead, second, first), Cat(takes[:n]).any()
            m.d.comb += [
                machine.taken.eq(takes[n] & self.ready & ~reading & ~busy & ~before),
                machine.held.eq(lent[n]),
                machine.row.eq(rows.read0.row),
                machine.queue.eq(self.queue_read.row),
            ]
            with m.If(machine.taken):
                m.d.sync += [lent[n].eq(1), places[n].eq(meant)]
            with m.Elif(machine.leave | (machine.put & machine.ready)):
                m.d.sync += lent[n].eq(0)
        m.d.comb += [
            rows.read0.index.eq(source),
            rows.read0.enable.eq(read),
            self.other.row.eq(self.queue_read.row),
            self.queue_read.enable.eq(reading | read),
            self.queue_read.index.eq(Mux(reading, self.other.index, queue)),
        ]

        # Writing: one row a cycle as well.
        clear = Signal(range(config.qps))
        m.d.comb += [
            rows.write.enable.eq(~self.ready | Cat(machine.put for machine in machines).any()),
            rows.write.index.eq(clear),
        ]
        for n, machine in reversed(list(enumerate(machines))):
            before = Cat(machines[k].put for k in range(n)).any()
            m.d.comb += machine.ready.eq(~before)
            with m.If(machine.put):
                m.d.comb += [rows.write.index.eq(places[n]), rows.write.row.eq(machine.changed)]
        with m.If(~self.ready):
            m.d.sync += [clear.eq(clear + 1), self.ready.eq(clear == config.qps - 1)]
        return m
