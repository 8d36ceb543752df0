"""WQEs on their way: a linked list per QP in one shared pool."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.jobs import Activation, DropList, Oldest
from hdl.ports.rows import Outstanding

from .receive_types import ReceiveFlags

__all__ = ["OutstandingTable", "Append", "Finish", "Fail", "Look", "Pop"]


class Append(data.Struct):
    """Append ``entry`` to the list of ``qp``; answered with its number in the pool."""

    qp: 14
    entry: Outstanding


class Finish(data.Struct):
    """Every packet of pool entry ``number`` of ``qp`` has been sent: its ``complete`` becomes 1."""

    qp: 14
    number: 16


class Fail(data.Struct):
    """The entry of ``qp`` at send-queue ``position`` has failed: complete, with ``status``.

    Nothing happens if there is none any more, or it has failed already."""

    qp: 14
    position: 16
    status: 8


class Look(data.Struct):
    """Show the oldest entry of ``qp``. ``stopped``: the asker would finish every entry that is
    complete, whatever it was sent for; who changes the list from now on must wake it."""

    qp: 14
    stopped: 1


class Pop(data.Struct):
    """Take the oldest entry of ``qp`` away; ``look``: and show the next one, as for a ``Look``."""

    qp: 14
    look: 1


class _Slice(data.Struct):
    """A list. ``watched``: some entry can finish without a packet from the peer."""

    used: 1
    watched: 1
    head: 16
    tail: 16


class OutstandingTable(wiring.Component):
    """Keeps, for each QP, the WQEs that wait for acknowledgement, oldest first.

    The pool has ``config.outstanding`` entries for all QPs together; ``room`` says that one is
    free. Requester: ``append`` -> ``appended`` (entry number), ``finish``, ``fail``. Completer:
    ``head_req`` -> ``head_rsp`` (oldest entry, or not ``valid``), ``pop`` (removes it).
    Firmware: ``drop`` (QP; gives back all its entries, when the QP goes to RESET).
    ``poke`` Out, to the receive side: the oldest entry of a watched list may be finishable. A list
    is watched from its first entry with a status, or from a look with ``stopped``, until ``drop``;
    every append, finish, fail and pop of such a list gives a poke.
    The completer has ``head_req`` or ``pop`` valid, never both: so each is ready whatever the other
    is, and nothing that it does waits for what it asks.

    Latency: each operation takes 2 or 3 cycles, one at a time, a pop behind its look 1, and with
    the next look 2; ``fail`` and ``drop`` walk the list, 2 cycles an entry (both are rare).
    Throughput: a WQE costs an append, a look and a pop, and with several packets a finish: 6 to 8
    cycles in all, 4 to 6 of those that one ACK finishes behind another.
    Errors: an append without ``room`` waits. Reset: empty, cleared row by row.
    """

    def __init__(self, *, config: NicConfig):
        self._entries, self._qps = config.outstanding, config.qps
        super().__init__(
            {
                "append": In(stream.Signature(Append)),
                "appended": Out(stream.Signature(16)),
                "finish": In(stream.Signature(Finish)),
                "fail": In(stream.Signature(Fail)),
                "head_req": In(stream.Signature(Look)),
                "head_rsp": Out(stream.Signature(Oldest)),
                "pop": In(stream.Signature(Pop)),
                "drop": In(stream.Signature(DropList)),
                "poke": Out(stream.Signature(Activation)),
                "room": Out(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        entry_bits, qp_bits = ceil_log2(self._entries), ceil_log2(self._qps)
        # No operation writes a row in the cycle in which it reads the same one.
        each = {"depth": self._entries, "forward": False}
        m.submodules.rows = rows = Ram(shape=Outstanding, **each)
        m.submodules.complete = complete = Ram(shape=1, block=True, **each)
        m.submodules.status = statuses = Ram(shape=8, block=True, **each)
        m.submodules.links = links = Ram(shape=entry_bits, **each)
        m.submodules.free = free = Ram(shape=entry_bits, depth=self._entries)
        m.submodules.lists = lists = Ram(shape=_Slice, depth=self._qps, forward=False)

        clear = Signal(range(max(self._entries, self._qps) + 1))
        free_head, free_tail = Signal(entry_bits), Signal(entry_bits)
        free_count = Signal(range(self._entries + 1))
        m.d.comb += [
            free.read0.index.eq(free_head),
            free.read0.enable.eq(1),
            self.room.eq(free_count != 0),
            rows.write.row.eq(self.append.payload.entry),
        ]

        qp = Signal(qp_bits)
        number = Signal(entry_bits)  # entry being looked at
        here = Signal(_Slice)
        failing, dropping, stopped = Signal(), Signal(), Signal()
        following = Signal()  # the pop looks at the next entry
        # ``here`` and ``number`` are as the last look has shown, so that a pop need not look again.
        held, held_qp, held_link = Signal(), Signal(qp_bits), Signal(entry_bits)
        position, status = Signal(16), Signal(8)
        # Of the entry that a walk has come to.
        found, named, good, last = Signal(16, reset_less=True), Signal(), Signal(), Signal()
        # In a register: two cycles behind ``free_head``, one before the next append can want it.
        free_number = Signal(entry_bits, reset_less=True)
        m.d.sync += free_number.eq(free.read0.row)

        given, taken = Signal(), Signal()  # an entry, to the free list and from it
        more, fewer = free_count + 1, free_count - 1
        with m.If(given | taken):  # which come late
            m.d.sync += free_count.eq(Mux(taken, fewer, more))

        def give_back(entry):
            m.d.comb += [
                free.write.index.eq(free_tail),
                free.write.row.eq(entry),
                free.write.enable.eq(1),
            ]
            m.d.comb += given.eq(1)
            m.d.sync += free_tail.eq(free_tail + 1)

        def read_list(index):
            m.d.comb += [lists.read0.index.eq(index), lists.read0.enable.eq(1)]
            m.d.sync += qp.eq(index)

        def read_entry(index):
            m.d.comb += [
                rows.read0.index.eq(index),
                rows.read0.enable.eq(1),
                complete.read0.index.eq(index),
                complete.read0.enable.eq(1),
                statuses.read0.index.eq(index),
                statuses.read0.enable.eq(1),
                links.read0.index.eq(index),
                links.read0.enable.eq(1),
            ]
            m.d.sync += number.eq(index)

        def poke_if(watched, index=qp):
            m.d.sync += self.poke.payload.qp.eq(index)
            with m.If(watched):
                m.d.sync += self.poke.valid.eq(1)

        def unlink(index, link):
            """Takes entry ``number`` off the head of the list ``here``."""
            with m.If(here.used):
                give_back(number)
                m.d.comb += [
                    lists.write.index.eq(index),
                    lists.write.row.used.eq(here.head != here.tail),
                    lists.write.row.watched.eq(here.watched),
                    follows.eq(1),
                    link_to.eq(link),
                    lists.write.row.tail.eq(here.tail),
                    lists.write.enable.eq(1),
                ]
                poke_if(here.watched & (here.head != here.tail), index)

        def show_behind():
            """Goes on to show the entry behind the one that is taken off the list ``here``."""
            left = here.used & (here.head != here.tail)
            m.d.sync += [used.eq(left), here.used.eq(left), here.head.eq(held_link)]
            read_entry(held_link)
            m.next = "HEAD-ROW"

        m.d.comb += self.poke.payload.flags.eq(ReceiveFlags.FINISH)
        with m.If(self.poke.ready):
            m.d.sync += self.poke.valid.eq(0)

        # A list goes on from what its row says, a new entry or a link. The row is late: no choice
        # by the state stands behind it.
        begins, follows, link_to = Signal(), Signal(), Signal(entry_bits)
        stands = Signal()  # the row says where the list begins
        looks = Signal()  # ... and whether it is watched
        head = (
            (lists.read0.row.head & stands.replicate(16))
            | (free_number & begins.replicate(16))
            | (link_to & follows.replicate(16))
        )
        m.d.comb += lists.write.row.head.eq(head)

        oldest, used = self.head_rsp.payload, Signal()
        m.d.comb += [
            oldest.valid.eq(used),
            oldest.entry.eq(rows.read0.row),
            oldest.entry.complete.eq(complete.read0.row),
            oldest.entry.status.eq(statuses.read0.row),
        ]

        with m.FSM(name="operation") as operation:
            m.d.comb += self.ready.eq(~operation.ongoing("CLEAR"))
            with m.State("CLEAR"):
                m.d.comb += [
                    lists.write.index.eq(clear),
                    lists.write.enable.eq(clear < self._qps),
                    free.write.index.eq(clear),
                    free.write.row.eq(clear),
                    free.write.enable.eq(clear < self._entries),
                ]
                m.d.sync += [clear.eq(clear + 1), free_count.eq(self._entries)]
                with m.If(clear == max(self._entries, self._qps) - 1):
                    m.next = "IDLE"
            with m.State("IDLE"):
                # The completer first: what it takes off makes room.
                m.d.comb += [
                    self.pop.ready.eq(~self.poke.valid),
                    self.head_req.ready.eq(~self.poke.valid),
                ]
                with m.If(self.poke.valid):
                    pass  # each of these may have one to give
                with m.Elif(self.pop.valid):
                    read_list(self.pop.payload.qp)
                    m.d.sync += [held.eq(0), following.eq(self.pop.payload.look)]
                    with m.If(held & (held_qp == self.pop.payload.qp)):
                        unlink(held_qp, held_link)
                        with m.If(self.pop.payload.look):
                            show_behind()
                    with m.Else():
                        m.next = "POP"
                with m.Elif(self.head_req.valid):
                    read_list(self.head_req.payload.qp)
                    m.d.sync += stopped.eq(self.head_req.payload.stopped)
                    m.next = "HEAD"
                with m.Elif(self.finish.valid):
                    m.d.comb += [
                        self.finish.ready.eq(1),
                        complete.write.index.eq(self.finish.payload.number),
                        complete.write.row.eq(1),
                        complete.write.enable.eq(1),
                    ]
                    read_list(self.finish.payload.qp)
                    m.next = "FINISH"
                with m.Elif(self.fail.valid | self.drop.valid):
                    m.d.comb += [self.fail.ready.eq(1), self.drop.ready.eq(~self.fail.valid)]
                    m.d.sync += [
                        held.eq(0),
                        failing.eq(self.fail.valid),
                        dropping.eq(~self.fail.valid),
                        position.eq(self.fail.payload.position),
                        status.eq(self.fail.payload.status),
                    ]
                    with m.If(self.fail.valid):
                        read_list(self.fail.payload.qp)
                    with m.Else():
                        read_list(self.drop.payload.qp)
                    m.next = "WALK"
                with m.Elif(self.append.valid & self.room & ~self.appended.valid):
                    read_list(self.append.payload.qp)
                    m.next = "APPEND"
            with m.State("FINISH"):
                poke_if(0)
                m.d.comb += looks.eq(1)
                m.next = "IDLE"
            with m.State("APPEND"):
                watched = lists.read0.row.watched | (self.append.payload.entry.status != 0)
                poke_if(self.append.payload.entry.status != 0)
                m.d.comb += [
                    looks.eq(1),
                    stands.eq(lists.read0.row.used),
                    begins.eq(~lists.read0.row.used),
                    taken.eq(1),
                    self.append.ready.eq(1),
                    rows.write.index.eq(free_number),
                    rows.write.enable.eq(1),
                    complete.write.index.eq(free_number),
                    complete.write.row.eq(self.append.payload.entry.complete),
                    complete.write.enable.eq(1),
                    statuses.write.index.eq(free_number),
                    statuses.write.row.eq(self.append.payload.entry.status),
                    statuses.write.enable.eq(1),
                    links.write.index.eq(lists.read0.row.tail),
                    links.write.row.eq(free_number),
                    links.write.enable.eq(lists.read0.row.used),
                    lists.write.index.eq(qp),
                    lists.write.row.used.eq(1),
                    lists.write.row.watched.eq(watched),
                    lists.write.row.tail.eq(free_number),
                    lists.write.enable.eq(1),
                ]
                m.d.sync += [
                    free_head.eq(free_head + 1),
                    self.appended.payload.eq(free_number),
                    self.appended.valid.eq(1),
                ]
                with m.If(held & (qp == held_qp)):
                    m.d.sync += [here.tail.eq(free_number), here.watched.eq(watched)]
                    with m.If(~here.used):
                        m.d.sync += held.eq(0)
                    with m.Elif(here.head == here.tail):
                        m.d.sync += held_link.eq(free_number)
                # The free list's RAM shows the next free entry before the next append looks at it.
                m.next = "IDLE"
            with m.State("HEAD"):
                m.d.sync += [
                    used.eq(lists.read0.row.used),
                    here.eq(lists.read0.row),
                    here.watched.eq(lists.read0.row.watched | stopped),
                    held_qp.eq(qp),
                ]
                m.d.comb += [
                    lists.write.index.eq(qp),
                    lists.write.row.used.eq(lists.read0.row.used),
                    lists.write.row.watched.eq(1),
                    stands.eq(1),
                    lists.write.row.tail.eq(lists.read0.row.tail),
                    lists.write.enable.eq(stopped),
                ]
                read_entry(lists.read0.row.head)
                m.next = "HEAD-ROW"
            with m.State("HEAD-ROW"):
                m.d.comb += self.head_rsp.valid.eq(1)
                m.d.sync += [held.eq(1), held_link.eq(links.read0.row)]
                with m.If(self.head_rsp.ready):
                    m.next = "IDLE"
            with m.State("POP"):
                m.d.sync += here.eq(lists.read0.row)
                read_entry(lists.read0.row.head)
                m.next = "UNLINK"
            with m.State("UNLINK"):
                unlink(qp, links.read0.row)
                m.d.sync += [held_qp.eq(qp), held_link.eq(links.read0.row)]
                m.next = "IDLE"
                with m.If(following):
                    m.next = "AGAIN"
            with m.State("AGAIN"):
                show_behind()
            with m.State("WALK"):
                m.d.sync += here.eq(lists.read0.row)
                # What fails is watched; a list that is dropped is empty from now on.
                m.d.comb += [lists.write.index.eq(qp), lists.write.enable.eq(1)]
                with m.If(failing):
                    m.d.comb += [
                        stands.eq(1),
                        lists.write.row.used.eq(lists.read0.row.used),
                        lists.write.row.tail.eq(lists.read0.row.tail),
                    ]
                m.d.comb += lists.write.row.watched.eq(failing)
                poke_if(failing)
                read_entry(lists.read0.row.head)
                with m.If(lists.read0.row.used):
                    m.next = "WALK-ENTRY"
                with m.Else():
                    m.next = "IDLE"
            with m.State("WALK-ENTRY"):
                with m.If(dropping):
                    give_back(number)
                m.d.sync += [
                    found.eq(rows.read0.row.position),
                    good.eq(statuses.read0.row == 0),
                    last.eq(number == here.tail),
                    here.head.eq(links.read0.row),
                ]
                m.next = "WALK-NEXT"
            with m.State("WALK-NEXT"):
                m.d.comb += [
                    named.eq(failing & (found == position)),
                    complete.write.index.eq(number),
                    complete.write.row.eq(1),
                    complete.write.enable.eq(named),
                    statuses.write.index.eq(number),
                    statuses.write.row.eq(status),
                    statuses.write.enable.eq(named & good),
                ]
                with m.If(last):
                    m.next = "IDLE"
                with m.Else():
                    read_entry(here.head)
                    m.next = "WALK-ENTRY"

        with m.If(looks & lists.read0.row.watched):
            m.d.sync += self.poke.valid.eq(1)
        with m.If(self.appended.valid & self.appended.ready):
            m.d.sync += self.appended.valid.eq(0)
        return m
