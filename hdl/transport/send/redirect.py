"""What ends a WQE's turn other than its last packet: failure, rollback, restart."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.common.contract import require
from hdl.common.skid import Register
from hdl.ports.jobs import FetchStatus, Rewind, SendFetched
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import GENERATION, QpTx

from ..outstanding.types import Fail

__all__ = ["Redirect", "RequestRedirect"]


class Redirect(enum.Enum, shape=4):
    """Why the requester leaves the straight way, and how it comes back."""

    RESTART = 0  # the QP sends again from another place: its row moves, the scheduler rewinds
    REFUSED = 1  # the gather has refused a packet: its WQE's entry fails, and the QP stops
    REPORTED = 2  # the WQE at hand fails; its entry has been appended with the status
    FAILED = 3  # likewise, but it has an entry since before, which gets the status
    STOPPED = 4  # likewise: the QP broke while the message was on its way
    YIELD = 5  # the WQE is given back and fetched again, to go on where its row is
    BLOCK = 6  # it is given back until the completer wakes the QP; its row has not changed
    DROP = 7  # only its line is given back
    SKIP = 8  # the WQE has ended since the QP went back to it: on to the oldest that has not
    EXECUTED = 9  # the WQE had no packets, and what it asked for is done
    BACK = 10  # the QP at work goes back: in the WQE at hand, or as with SKIP


#: Those that stop the QP at the WQE at hand.
FAILING = (Redirect.REPORTED, Redirect.FAILED, Redirect.STOPPED)
#: Those that leave the WQE at hand behind.
LEAVING = (*FAILING, Redirect.EXECUTED)
#: First states that are not called like their way.
ENTRIES = dict.fromkeys(LEAVING, "LEAVE") | {Redirect.DROP: "RELEASE"}


class RequestRedirect(wiring.Component):
    """Fails, gives back and restarts WQEs: everything that needs a rewind or an entry's failure.

    Spec: IBTA vol 1, 9.7.4.1.2 (requests behind a missing one), 9.9.2 (errors of the requester),
    10.8.3 (flush).
    ``start`` with a ``way`` is the only entry; whoever finds the reason stops first. A failure
    sets the row's ``error``, so every later WQE of the QP is flushed, in order. Packets that were
    handed over behind a refused one go out; the PSN that is missing before them keeps the peer from
    executing them.

    Members: ``start``, ``way``; the row of the QP has been asked for in that cycle (RESTART,
    REFUSED), and may be used when it is ``known``, or is in the working copy. ``wqe`` the one at
    hand (not with RESTART, REFUSED); ``status`` why it failed; ``wake_generation``: of ``QpAck`` as
    the decision saw it; ``entering``: its outstanding entry is being made, so ``fail`` and the
    rewind must wait. ``refused`` from ``RequestChecks``; ``restart``: a QP that goes back.
    ``waiting``: of its ``QpAck``: it sends nothing before its time. ``ended``: the refused packet
    is of a WQE that has ended; ``refused_copy``: it is a piece of a MEMCPY, which the QP, stopped,
    goes on with, to hand over its last piece. To ``RequestRow``: ``load``, ``move``, ``skip``,
    ``error``, ``save``. ``fail`` to the outstanding table, ``rewind`` to the scheduler.
    ``release``: the WQE's line is given back behind its packets; ``released``: there is room for
    that. ``read``: the rows of the QP at work are to be read in this cycle; ``at_hand``, 3 cycles
    after they are here: it goes back to the WQE at hand. That is not fetched again, but begun
    again: ``resume``, a pulse that waits for ``may_resume``. ``done``: pulse in the last cycle of
    every other way.

    ``rewinds``, with ``save``: the row moves on or back, so a new generation of WQEs begins.
    ``moves``: a row may have moved whose rewind is still to come.

    Latency: REFUSED 3 cycles, RESTART and SKIP 6, BACK 8, the others 1 to 3; more while ``fail``,
    ``rewind`` or ``release`` wait. Throughput: one at a time. Errors: none of its own. Reset: idle.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "way": In(Redirect),
                "known": In(1),
                "qp": In(QpNumber),
                "wqe": In(SendFetched),
                "row": In(QpTx),
                "status": In(8),
                "wake_generation": In(8),
                "waiting": In(1),
                "ended": In(1),
                "entering": In(1),
                "refused": In(stream.Signature(Fail)),
                "refused_copy": In(1),
                "restart": In(stream.Signature(QpNumber)),
                "load": Out(1),
                "move": Out(1),
                "skip": Out(1),
                "error": Out(1),
                "save": Out(1),
                "rewinds": Out(1),
                "moves": Out(1),
                "fail": Out(stream.Signature(Fail)),
                "rewind": Out(stream.Signature(Rewind)),
                "release": Out(1),
                "released": In(1),
                "read": Out(1),
                "at_hand": In(1),
                "may_resume": In(1),
                "resume": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # In a register: the table is asked by many, and takes what is first late in the cycle.
        m.submodules.fails = fails = Register(shape=Fail)
        wiring.connect(m, fails.o, wiring.flipped(self.fail))
        fail, refused = fails.i, self.refused
        marks, stopped, refusing = Signal(), Signal(), Signal()  # FAILED or STOPPED; that; REFUSED
        skips = Signal()  # SKIP, or BACK
        m.d.comb += [
            fail.payload.qp.eq(self.qp),
            fail.payload.position.eq(self.wqe.position),
            fail.payload.status.eq(Mux(stopped, WcStatus.WR_FLUSH_ERR, self.status)),
            self.rewind.payload.qp.eq(self.qp),
            self.rewind.payload.position.eq(self.row.position),
            self.rewind.payload.wake_generation.eq(self.wake_generation),
            self.rewind.payload.generation.eq(self.row.generation),
        ]
        # The row moved: no WQE that has been fetched for its old place may be taken any more. Where
        # it stays (YIELD, BLOCK) those are behind it.
        moved_on = (self.row.generation + 1)[:GENERATION]
        with m.If(refusing):
            m.d.comb += fail.payload.eq(refused.payload)
        way, entry = Value.cast(self.way), {one: one.name for one in Redirect} | ENTRIES
        breaks = Signal()  # the way stops the QP; a cycle later, as it is known late
        with m.FSM(name="redirect") as redirect:
            m.d.comb += self.moves.eq(~redirect.ongoing("IDLE"))
            require(m, platform, ~(self.start & self.moves), "a redirect has one way at a time")
            # IDLE: nothing is wrong; ``start`` ends it.
            with m.State("IDLE"):
                m.d.sync += [
                    breaks.eq(way.matches(*FAILING)),
                    marks.eq(way.matches(Redirect.FAILED, Redirect.STOPPED)),
                    stopped.eq(way == Redirect.STOPPED),
                    refusing.eq(self.start & (way == Redirect.REFUSED)),
                ]
                with m.If(self.start), m.Switch(self.way):
                    for one, state in entry.items():
                        with m.Case(one):
                            m.next = state

            self._restart(m, skips, moved_on)
            # REFUSED: the row of the refused packet's QP is loaded; ends when it is here.
            with m.State("REFUSED"), m.If(self.known):
                m.d.comb += self.load.eq(1)
                m.next = "REFUSED-ROW"
            # REFUSED-ROW: the QP stops, and leaves the WQE if it had not been sent to its end;
            # nothing stops for a WQE that has ended; lasts one cycle.
            with m.State("REFUSED-ROW"):
                m.d.comb += self.error.eq(~self.ended)
                at_it = self.row.position == refused.payload.position
                m.d.comb += self.skip.eq(at_it & ~self.refused_copy)
                m.next = "FAIL"
            # LEAVE: the row leaves a WQE that has come to its end; lasts one cycle.
            with m.State("LEAVE"):
                m.d.comb += [self.skip.eq(1), self.error.eq(breaks)]
                m.next = "FAIL"
            # FAIL: the row is written, and the entry of a WQE that fails gets its status, unless
            # it was appended with it. Ends when that is on its way.
            with m.State("FAIL"):
                m.d.comb += [self.save.eq(1), self.rewinds.eq(refusing)]
                fails = marks | (refusing & ~self.refused_copy)
                m.d.comb += fail.valid.eq(fails & ~self.entering)
                with m.If(refusing & ~self.entering & (fail.ready | self.refused_copy)):
                    # The scheduler may have been told to fetch a WQE that was left.
                    m.d.comb += refused.ready.eq(1)
                    m.d.sync += refusing.eq(0)
                    m.next = "RESTART-REWIND"
                with m.Elif(~refusing & ~self.entering & (fail.ready | ~marks)):
                    m.next = "RELEASE"

            # YIELD: the row is written and the scheduler fetches again from there; ends when it
            # knows, and the WQE's entry is in the outstanding table.
            with m.State("YIELD"):
                m.d.comb += [self.save.eq(~self.entering), self.rewind.valid.eq(~self.entering)]
                with m.If(~self.entering & self.rewind.ready):
                    m.next = "RELEASE"
            # BLOCK: the scheduler fetches again after a wake; ends when it knows.
            with m.State("BLOCK"):
                m.d.comb += [self.rewind.valid.eq(1), self.rewind.payload.blocked.eq(1)]
                with m.If(self.rewind.ready):
                    m.next = "RELEASE"
            # RELEASE: the WQE's line, if it has one, is given back behind its packets. Ends when
            # there is room for that, and its entry is in the outstanding table.
            with m.State("RELEASE"):
                m.d.comb += self.release.eq(~self.entering & (self.wqe.status == FetchStatus.OK))
                with m.If(~self.entering & self.released):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

    def _restart(self, m: Module, skips: Signal, moved_on: Value) -> None:
        """States of a QP that goes back, from idleness (RESTART) or from a WQE (BACK, SKIP).

        ``moved_on``: the generation of what is fetched behind it."""
        stays = Signal()  # BACK: the WQE at hand is the one to go on with
        # RESTART: the row is loaded; ends when it is here.
        with m.State("RESTART"), m.If(self.known):
            m.d.comb += [self.restart.ready.eq(1), self.load.eq(1)]
            m.next = "RESTART-PLACE"
        # RESTART-PLACE: how much of the WQE is acknowledged is worked out; lasts one cycle.
        with m.State("RESTART-PLACE"):
            m.next = "RESTART-OFFSET"
        # RESTART-OFFSET: and how many bytes these are; lasts one cycle.
        with m.State("RESTART-OFFSET"):
            m.next = "RESTART-MOVE"
        # RESTART-MOVE: the row moves there; lasts one cycle.
        with m.State("RESTART-MOVE"):
            m.d.comb += self.move.eq(1)
            m.d.sync += stays.eq(stays & self.at_hand & ~self.waiting)
            m.next = "RESTART-WRITE"
        # BACK: the row is to move as for a restart, while a WQE is at hand; ends when the entry
        # that is being made is in the outstanding table, as the QP's rows are read.
        with m.State("BACK"):
            m.d.comb += self.read.eq(~self.entering)
            m.d.sync += [skips.eq(1), stays.eq(1)]
            with m.If(~self.entering):
                m.next = "BACK-ROWS"
        # BACK-ROWS: waits for the rows, of which the working copy is newer than its own; ends with
        # them.
        with m.State("BACK-ROWS"), m.If(self.known):
            m.d.comb += self.restart.ready.eq(1)
            m.next = "RESTART-PLACE"
        # SKIP: the row is to move to the oldest WQE that has not ended, as for a restart; ends
        # when the entry that is being made is in the outstanding table.
        with m.State("SKIP"):
            m.d.sync += skips.eq(1)
            with m.If(~self.entering):
                m.next = "RESTART-OFFSET"
        # RESTART-WRITE: the row is written; lasts one cycle.
        with m.State("RESTART-WRITE"):
            m.d.comb += [self.save.eq(1), self.rewinds.eq(~stays)]
            m.next = "RESTART-REWIND"
        # RESTART-REWIND: the scheduler fetches from there, when the QP need not wait; ends when
        # it knows, or at once when nothing need be fetched.
        with m.State("RESTART-REWIND"):
            m.d.comb += self.rewind.valid.eq(~stays)
            m.d.comb += [
                self.rewind.payload.blocked.eq(self.waiting),
                self.rewind.payload.generation.eq(moved_on),
            ]
            with m.If(stays):
                m.next = "RESUME"
            with m.Elif(self.rewind.ready & skips):
                m.d.sync += skips.eq(0)
                m.next = "RELEASE"
            with m.Elif(self.rewind.ready):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"

        # RESUME: the WQE at hand is admitted once more, as if it had just been fetched; ends
        # when admission can take it.
        with m.State("RESUME"):
            m.d.comb += self.resume.eq(self.may_resume)
            m.d.sync += [skips.eq(0), stays.eq(0)]
            with m.If(self.may_resume):
                m.next = "IDLE"
