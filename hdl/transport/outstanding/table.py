"""WQEs on their way: a linked list per QP in one shared pool."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.common.streams import connect_stream
from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.jobs import Activation, DropList, Oldest
from hdl.ports.rows import ReadSink

from ..recovery.qp_timers import TimerKind, TimerSet
from .foresight import foresee, forget, read_ahead, shown_row
from .operation import Head, Slice, Walk, now_row
from .places import Places
from .pool import OutstandingPool
from .share import share_of
from .types import Append, Fail, Finish, Foreseen, Look, Pop

__all__ = ["OutstandingTable"]


class OutstandingTable(wiring.Component):
    """Keeps, for each QP, the WQEs that wait for acknowledgement, oldest first.

    The lists share a pool of ``config.outstanding`` entries (``OutstandingPool``). Scheduler:
    ``share``, as many as one QP may have. Requester: ``places`` (a free one, to be taken for the
    next append), ``append``, ``finish``, ``fail``. Completer: ``head_req`` -> ``head_rsp`` (oldest
    entry, or not ``valid``; ``foreseen``: of it), ``pop`` (removes it). Firmware: ``drop`` (QP;
    gives back all its entries, when the QP goes to RESET, and ``dropped``, for a cycle each, the
    sinks of its READs).
    ``poke`` Out, to the receive side: the oldest entry of a watched list may be finishable. A list
    is watched from its first entry with a status, or from a look with ``stopped``, until ``drop``;
    every append, finish, fail and pop of such a list gives a poke. So does the append of an entry
    that no answer ends (``Append.unsent``), the pop of the one before it, and a finish with
    ``ends`` of the oldest entry: what ends the oldest one looks at the next. ``timer`` Out: the QP
    has another answer to wait for from now on, or none. It says so in the order of the operations,
    the cycle behind each, and must be taken at once. The completer has ``head_req`` or ``pop``
    valid, never both: so each is ready whatever the other is, and nothing that it does waits for
    what it asks.

    Latency: each operation takes 2 or 3 cycles, one at a time, a pop behind its look 1, and with
    the next look 2; ``fail`` and ``drop`` walk the list, 2 cycles an entry (both are rare).
    Throughput: a WQE costs an append, a look and a pop, and with several packets a finish: 5 to 8
    cycles in all, 4 to 6 of those that one ACK finishes behind another.
    Errors: none. Reset: empty, cleared row by row.
    """

    def __init__(self, *, config: NicConfig):
        self._config, self._entries, self._qps = config, config.outstanding, config.qps
        super().__init__(
            {
                "places": Out(stream.Signature(16)),
                "share": Out(16),
                "append": In(stream.Signature(Append)),
                "finish": In(stream.Signature(Finish)),
                "fail": In(stream.Signature(Fail)),
                "head_req": In(stream.Signature(Look)),
                "head_rsp": Out(stream.Signature(Oldest)),
                "foreseen": Out(Foreseen),
                "pop": In(stream.Signature(Pop)),
                "drop": In(stream.Signature(DropList)),
                "dropped": Out(stream.Signature(ReadSink, always_ready=True)),
                "timer": Out(stream.Signature(TimerSet, always_ready=True)),
                "poke": Out(stream.Signature(Activation)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.pool = pool = OutstandingPool(config=self._config)
        m.submodules.free = free = Places(places=self._entries)
        # No operation writes a row in the cycle in which it reads the same one.
        m.submodules.lists = lists = Ram(shape=Slice, depth=self._qps, forward=False)
        bits = ceil_log2(self._qps), ceil_log2(self._entries)
        now, shown = Signal(now_row(*bits)), Signal(shown_row(*bits))
        walk, head, looks = Signal(Walk), Signal(Head), Signal()
        cleared = Signal(range(self._qps + 1))
        connect_stream(m, free.o, self.places)
        foresee(m, platform, shown, self, pool)
        m.d.comb += [
            self.poke.payload.flags.eq(ReceiveFlags.FINISH),
            self.head_rsp.payload.valid.eq(now.used),
            self.head_rsp.payload.entry.eq(pool.entry),
            self.dropped.payload.eq(pool.entry.sink),
            lists.write.row.watched.eq((lists.read0.row.watched & head.keeps) | head.watches),
            lists.write.row.head.eq(
                (
                    Mux(lists.read0.row.used, lists.read0.row.head, self.append.payload.number)
                    & head.stands.replicate(16)
                )
                | (head.behind & head.follows.replicate(16))
            ),
        ]
        finished = now.finishes & ~now.misses.any()
        m.d.comb += [self.timer.valid.eq(now.timed), self.poke.valid.eq(now.pokes | finished)]
        m.d.comb += self.share.eq(share_of(m, free.count, self._entries))
        stays, late = self.poke.valid & ~self.poke.ready, head.watched & lists.read0.row.watched
        m.d.sync += [now.timed.eq(0), now.finishes.eq(0), now.pokes.eq(stays | head.pokes | late)]
        with m.FSM(name="operation") as operation:
            m.d.comb += self.ready.eq(~operation.ongoing("CLEAR"))
            # CLEAR: empties one list after the other; ends when all are, and all entries are free.
            with m.State("CLEAR"):
                m.d.comb += [
                    lists.write.index.eq(cleared),
                    lists.write.enable.eq(cleared != self._qps),
                ]
                with m.If(cleared != self._qps):
                    m.d.sync += cleared.eq(cleared + 1)
                with m.Elif(free.ready):
                    m.next = "IDLE"
            self._begin(m, now, shown, walk, (head, looks))
            self._extend(m, now, shown, head)
            self._show(m, now, shown, head)
            self._walk(m, now, walk, head)
        text = "the completer looks or pops"
        require(m, platform, ~(self.head_req.valid & self.pop.valid), text)
        require(m, platform, ~(head.stands & head.follows), "a list has one head")
        # Whether the completer looks is known late, so it is the last to choose the list.
        with m.If(looks):
            m.d.comb += lists.read0.index.eq(self.head_req.payload.qp)
        return m

    def _begin(self, m: Module, now: Signal, shown: Signal, walk: Signal, late) -> None:
        """The next operation begins: first what the completer takes off, as it makes room. Its look
        is known late in the cycle, so who ends a WQE does not wait for it."""
        head, looks = late
        pop, look, fail = self.pop.payload, self.head_req.payload, self.fail.payload
        # IDLE: takes the next operation and reads its list; ends with one, or with a pop of the
        # list that was looked at last, which is done at once.
        with m.State("IDLE"):
            with m.If(shown.asks):
                read_ahead(m, shown, m.submodules.pool)
            m.d.comb += [
                self.pop.ready.eq(~self.poke.valid),
                self.head_req.ready.eq(~self.poke.valid & ~self.finish.valid),
            ]
            with m.If(self.poke.valid):
                pass  # each of these may have one to give
            with m.Elif(self.pop.valid):
                self._read_list(m, now, pop.qp)
                forget(m, shown, self.foreseen)
                m.d.sync += [
                    now.following.eq(pop.look),
                    now.timeout.eq(pop.timeout),
                    now.idle.eq(pop.idle),
                ]
                with m.If(shown.valid & (shown.qp == pop.qp)):
                    self._unlink(m, now, head, (shown.qp, shown.behind, pop.timeout, pop.idle))
                    with m.If(pop.look):
                        m.d.sync += self.foreseen.valid.eq(shown.comes | shown.known)
                        self._show_behind(m, now, shown)
                with m.Else():
                    m.next = "POP"
            with m.Elif(self.finish.valid):
                complete = m.submodules.pool.complete
                m.d.comb += [
                    self.finish.ready.eq(1),
                    complete.index.eq(self.finish.payload.number),
                    complete.row.eq(1),
                    complete.enable.eq(1),
                ]
                self._read_list(m, now, self.finish.payload.qp)
                m.d.sync += now.ends.eq(self.finish.payload.ends)
                m.d.sync += now.ended.eq(self.finish.payload.number)
                m.next = "FINISH"
            with m.Elif(self.head_req.valid):
                self._read_list(m, now, look.qp)
                m.d.comb += looks.eq(1)
                m.d.sync += now.stopped.eq(look.stopped)
                m.next = "HEAD"
            with m.Elif(self.fail.valid | self.drop.valid):
                m.next = "TAKE"
            with m.Elif(self.append.valid):
                self._read_list(m, now, self.append.payload.qp)
                m.next = "APPEND"
        # TAKE: takes a list that fails or is dropped, and reads it; one cycle.
        with m.State("TAKE"):
            m.d.comb += [self.fail.ready.eq(1), self.drop.ready.eq(~self.fail.valid)]
            forget(m, shown, self.foreseen)
            m.d.sync += [
                walk.failing.eq(self.fail.valid),
                walk.position.eq(fail.position),
                walk.status.eq(fail.status),
            ]
            self._read_list(m, now, Mux(self.fail.valid, fail.qp, self.drop.payload.qp))
            m.next = "WALK"

    def _extend(self, m: Module, now: Signal, shown: Signal, head: Signal) -> None:
        """The requester's operations."""
        pool, lists = m.submodules.pool, m.submodules.lists
        entry, number = self.append.payload.entry, self.append.payload.number
        row = lists.read0.row
        watched = row.watched | (entry.status != 0)
        # FINISH: gives a poke if the list is watched or its oldest WQE can end; one cycle. It only
        # looks at the list, so an append begins at once.
        with m.State("FINISH"):
            m.d.sync += [
                now.finishes.eq(now.ends),
                now.misses.eq(unequal(row.head[: len(now.ended)], now.ended)),
                self.poke.payload.qp.eq(now.qp),
            ]
            m.d.comb += head.watched.eq(1)
            m.next = "IDLE"
            with m.If(self.append.valid):
                self._read_list(m, now, self.append.payload.qp)
                m.next = "APPEND"
        # APPEND: the entry becomes the last one of the list; ends when no older poke waits, as it
        # may have one to give.
        with m.State("APPEND"), m.If(~self.poke.valid):
            self._poke_if(m, head, self.append.payload.unsent, now.qp)
            m.d.comb += [
                head.watched.eq(1),
                head.keeps.eq(1),
                head.watches.eq(entry.status != 0),
                head.stands.eq(1),
                self.append.ready.eq(1),
                pool.write.index.eq(number),
                pool.write.row.eq(entry),
                pool.write.enable.eq(1),
                pool.link.index.eq(row.tail),
                pool.link.row.number.eq(number),
                pool.link.row.unsent.eq(self.append.payload.unsent),
                pool.link.enable.eq(row.used),
                lists.write.index.eq(now.qp),
                lists.write.row.used.eq(1),
                lists.write.row.tail.eq(number),
                lists.write.enable.eq(1),
            ]
            with m.If(shown.valid & (now.qp == shown.qp)):
                m.d.sync += [now.list.tail.eq(number), now.list.watched.eq(watched)]
                with m.If(~now.list.used):
                    m.d.sync += shown.valid.eq(0)
                with m.Elif(now.list.head == now.list.tail):
                    m.d.sync += [shown.behind.eq(pool.link.row), shown.asks.eq(1)]
            m.next = "IDLE"

    def _show(self, m: Module, now: Signal, shown: Signal, head: Signal) -> None:
        """The completer's operations."""
        pool, lists = m.submodules.pool, m.submodules.lists
        row = lists.read0.row
        # HEAD: reads the oldest entry, and notes that the list is watched if the completer has
        # stopped; one cycle.
        with m.State("HEAD"):
            m.d.sync += [
                now.used.eq(row.used),
                now.list.eq(row),
                now.list.watched.eq(row.watched | now.stopped),
                shown.qp.eq(now.qp),
            ]
            m.d.comb += [
                lists.write.index.eq(now.qp),
                lists.write.row.used.eq(row.used),
                head.watches.eq(1),
                head.stands.eq(1),
                lists.write.row.tail.eq(row.tail),
                lists.write.enable.eq(now.stopped),
            ]
            self._read_entry(m, now, row.head)
            m.next = "HEAD-ROW"
        # HEAD-ROW: shows it; ends when it is taken.
        with m.State("HEAD-ROW"):
            m.d.comb += self.head_rsp.valid.eq(1)
            m.d.sync += [shown.valid.eq(1), shown.behind.eq(pool.behind)]
            with m.If(self.head_rsp.ready):
                m.d.sync += [
                    self.foreseen.valid.eq(0),
                    shown.known.eq(0),
                    shown.asks.eq(now.used & (now.list.head != now.list.tail)),
                ]
                m.next = "IDLE"
        # POP: reads the oldest entry, for what is behind it; one cycle.
        with m.State("POP"):
            m.d.sync += now.list.eq(row)
            self._read_entry(m, now, row.head)
            m.next = "UNLINK"
        # UNLINK: takes it off the list; one cycle.
        with m.State("UNLINK"):
            self._unlink(m, now, head, (now.qp, pool.behind, now.timeout, now.idle))
            m.d.sync += [shown.qp.eq(now.qp), shown.behind.eq(pool.behind)]
            m.next = "IDLE"
            with m.If(now.following):
                m.next = "AGAIN"
        # AGAIN: reads the entry behind it; one cycle.
        with m.State("AGAIN"):
            self._show_behind(m, now, shown)

    def _walk(self, m: Module, now: Signal, walk: Signal, head: Signal) -> None:
        """A walk along the list: for the entry that has failed, or to give all entries back."""
        pool, lists = m.submodules.pool, m.submodules.lists
        row, named = lists.read0.row, Signal()
        # WALK: reads the oldest entry; one cycle. What fails is watched; a list that is dropped is
        # empty from now on.
        with m.State("WALK"):
            m.d.sync += now.list.eq(row)
            m.d.comb += [
                lists.write.index.eq(now.qp),
                head.watches.eq(walk.failing),
                lists.write.enable.eq(1),
            ]
            with m.If(walk.failing):
                m.d.comb += [
                    head.stands.eq(1),
                    lists.write.row.used.eq(row.used),
                    lists.write.row.tail.eq(row.tail),
                ]
            self._poke_if(m, head, walk.failing, now.qp)
            self._time(m, now, now.qp, 0, start=0, when=~walk.failing)
            self._read_entry(m, now, row.head)
            m.next = "IDLE"
            with m.If(row.used):
                m.next = "WALK-ENTRY"
        # WALK-ENTRY: looks at the entry, which is free again if the list is dropped; one cycle.
        with m.State("WALK-ENTRY"):
            with m.If(~walk.failing):
                self._give_back(m, now)
                m.d.comb += self.dropped.valid.eq(pool.entry.data)
            m.d.sync += [
                walk.found.eq(pool.entry.position),
                walk.good.eq(pool.entry.status == 0),
                walk.last.eq(now.number == now.list.tail),
                now.list.head.eq(pool.behind.number),
            ]
            m.next = "WALK-NEXT"
        # WALK-NEXT: the one that has failed gets its status, and the next one is read; one cycle.
        # The walk ends with the last one.
        with m.State("WALK-NEXT"):
            m.d.comb += [
                named.eq(walk.failing & (walk.found == walk.position)),
                pool.complete.index.eq(now.number),
                pool.complete.row.eq(1),
                pool.complete.enable.eq(named),
                pool.status.index.eq(now.number),
                pool.status.row.eq(walk.status),
                pool.status.enable.eq(named & walk.good),
            ]
            m.next = "IDLE"
            with m.If(~walk.last):
                self._read_entry(m, now, now.list.head)
                m.next = "WALK-ENTRY"

    def _read_list(self, m: Module, now: Signal, qp: Value) -> None:
        """Read the list of ``qp``, which is worked on from now on."""
        read = m.submodules.lists.read0
        m.d.comb += [read.index.eq(qp), read.enable.eq(1)]
        m.d.sync += now.qp.eq(qp)

    def _read_entry(self, m: Module, now: Signal, number: Value) -> None:
        """Read an entry of the list."""
        pool = m.submodules.pool
        m.d.comb += [pool.number.eq(number), pool.enable.eq(1)]
        m.d.sync += now.number.eq(number)

    def _give_back(self, m: Module, now: Signal) -> None:
        """The entry that was read last is free."""
        free = m.submodules.free
        m.d.comb += [free.give.eq(1), free.given.eq(now.number)]

    def _poke_if(self, m: Module, head: Signal, pokes: Value, qp: Value) -> None:
        m.d.sync += self.poke.payload.qp.eq(qp)
        m.d.comb += head.pokes.eq(pokes)

    def _time(
        self, m: Module, now: Signal, qp: Value, timeout: Value | int, *, start, when: Value
    ) -> None:
        """Start the timer of ``qp`` anew, or stop it."""
        m.d.sync += [
            now.timed.eq(when),
            self.timer.payload.qp.eq(qp),
            self.timer.payload.kind.eq(Mux(start, TimerKind.ANSWER, TimerKind.OFF)),
            self.timer.payload.code.eq(timeout),
        ]

    def _unlink(self, m: Module, now: Signal, head: Signal, what) -> None:
        """Take the entry that was read last off the head of its list, if there is one.

        ``what``: the QP, the entry behind it, ``Pop.timeout`` and ``Pop.idle``."""
        qp, behind, timeout, idle = what
        write, more = m.submodules.lists.write, now.list.head != now.list.tail
        with m.If(now.list.used):
            self._give_back(m, now)
            m.d.comb += [
                write.index.eq(qp),
                write.row.used.eq(more),
                head.watches.eq(now.list.watched),
                write.row.tail.eq(now.list.tail),
                write.enable.eq(1),
                head.follows.eq(1),
                head.behind.eq(behind.number),
            ]
            self._poke_if(m, head, (now.list.watched | behind.unsent) & more, qp)
            self._time(m, now, qp, timeout, start=more, when=timeout != 0)
            m.d.sync += self.timer.payload.idle.eq(idle)

    def _show_behind(self, m: Module, now: Signal, shown: Signal) -> None:
        """Show the entry behind the one that is taken off the list."""
        left = now.list.used & (now.list.head != now.list.tail)
        m.d.sync += [now.used.eq(left), now.list.used.eq(left)]
        m.d.sync += now.list.head.eq(shown.behind.number)
        self._read_entry(m, now, shown.behind.number)
        m.next = "HEAD-ROW"
