"""The timers of the QPs: how long an answer may take, and how long a peer has asked to wait."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.count import increment
from hdl.common.epoch import EPOCH
from hdl.common.ram import Ram
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.activations import ReceiveFlags
from hdl.ports.jobs import Activation
from hdl.ports.numbers import QpNumber

__all__ = ["QpTimers", "TimerKind", "TimerRow", "TimerSet", "duration_ticks"]

#: Bits of a stamp: a row is looked at before its class has counted so far.
STAMP = 5


class TimerKind(enum.Enum, shape=2):
    """What a QP waits for."""

    OFF = 0
    ANSWER = 1  # an acknowledgement: 4.096 us x 2^code (IBTA vol 1, 9.7.6.1.3)
    PAUSE = 2  # the peer's receive queue: RNR timer ``code`` (9.7.5.2.8, table 46)


class TimerSet(data.Struct):
    """Start the timer of ``qp`` anew, or stop it (OFF). ``idle``: no answer to anything that has
    left the card is awaited yet, so that the next departure starts it anew."""

    qp: QpNumber
    kind: TimerKind
    code: 5
    idle: 1


class TimerRow(data.Struct):
    """A timer. A class counts steps of 2^``shift`` ticks; ``stamp`` is its count at the start."""

    kind: TimerKind
    shift: 5
    odd: 1  # a PAUSE of three halves of the class's power of two
    idle: 1  # see ``TimerSet``
    stamp: STAMP


def _class(kind: TimerKind, code: int) -> tuple[int, int]:
    """``shift`` and ``odd`` of the timer ``code``."""
    if kind is TimerKind.ANSWER:
        return code, 0
    if code == 0:
        return 16, 0  # the longest: 655.36 ms
    if code == 1:
        return 0, 0  # 10 us
    return code >> 1 if code % 2 == 0 else (code - 1) >> 1, code % 2


#: Steps that must have begun since the start: one more than those that the duration takes.
#: ANSWER: 4 of 1.024 us x 2^shift. PAUSE: 10 of them are 10.24 us x 2^shift; ``odd``, 15.36 us.
STEPS = {TimerKind.ANSWER: (5, 5), TimerKind.PAUSE: (11, 16)}


def duration_ticks(kind: TimerKind, code: int) -> int:
    """Ticks that a timer lasts at least."""
    shift, odd = _class(kind, code)
    return STEPS[kind][odd] - 1 << shift


class QpTimers(wiring.Component):
    """A timer for each QP. One that has run out is stopped, and its QP poked with TIMEOUT.

    Spec: IBTA vol 1, 9.7.6.1.3 (local ACK timeout), 9.7.5.2.8 (RNR NAK timer).
    Time is counted in ticks of 1.024 us while any timer runs. A timer of class ``shift`` keeps the
    count of 2^``shift`` ticks at its start, so setting one is a single write. When such a count
    moves on of a class that has timers, all rows are read, one after the other (a sweep), and those
    that are over are stopped. A row that is set while it is being looked at is left alone.

    Members: ``set0`` (outstanding table), ``set1`` (completer), ``set2`` (departures) In:
    ``TimerSet``; the first one is always taken, if not before ``ready``. The last one changes
    nothing while the QP pauses, as what leaves then was handed over before; nor while it waits for
    an answer already: however much the QP sends behind a packet, the answer to that one is due.
    ``poke`` Out. ``running``:
    the row of a QP, for who wants to know whether a poke is older than the timer. ``tick``: cycles
    of 1.024 us, at least 1. ``ready``: cleared.
    Latency: a set takes effect 2 cycles after it is taken, and has its class counted one later.
    Throughput: one a cycle, of departures one in two. A sweep takes 4 cycles for each QP.
    Bounds: a timer runs out between its duration T (for PAUSE up to 2.4 % more) and 1.25 T, and the
    time of two sweeps later: 2 x 262 us with 16384 QPs at 250 MHz, 2 x 16 us with 1024.
    Errors: none. Reset: all stopped, row by row.
    """

    def __init__(self, *, config: NicConfig):
        self._qps = config.qps
        super().__init__(
            {
                "set0": In(stream.Signature(TimerSet, always_ready=True)),
                "set1": In(stream.Signature(TimerSet)),
                "set2": In(stream.Signature(TimerSet)),
                "poke": Out(stream.Signature(Activation)),
                "running": In(TableRead(QpNumber, TimerRow)),
                "tick": In(16),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._qps)
        m.submodules.rows = rows = Ram(shape=TimerRow, depth=self._qps, reads=3, earlier=(0, 1))
        m.d.comb += [
            rows.read1.index.eq(self.running.index[:bits]),
            rows.read1.enable.eq(self.running.enable),
            self.running.row.eq(rows.read1.row),
        ]
        stamps, due, used, seen = self._time(m)
        at, ended = Signal(bits), Signal()  # the sweep's row; another sweep is due
        qp, starts, setting = self._sets(m, stamps)
        m.d.sync += [used.eq(used | starts), seen.eq(seen | starts)]

        row, elapsed = Signal(TimerRow, reset_less=True), Signal(STAMP, reset_less=True)
        steps, over = Signal(STAMP, reset_less=True), Signal()
        touched, meets = Signal(), Signal()  # the timer has been set since it was read; it is now
        m.d.comb += [
            rows.read0.index.eq(at),
            meets.eq(setting & (qp == at)),
            over.eq((row.kind != TimerKind.OFF) & (elapsed >= steps) & ~touched),
            self.poke.payload.flags.eq(ReceiveFlags.TIMEOUT),
        ]
        m.d.sync += touched.eq(touched | meets)
        with m.If(due):
            m.d.sync += ended.eq(1)
        with m.If(self.poke.ready):
            m.d.sync += self.poke.valid.eq(0)
        with m.FSM(name="sweep") as sweep:
            # CLEAR: stops one timer after the other; ends with the last one.
            with m.State("CLEAR"):
                self._stop(m, at)
                m.d.sync += at.eq(at + 1)
                with m.If(at == self._qps - 1):
                    m.next = "IDLE"
            # IDLE: no count of a class in use has moved on; ends when one does.
            with m.State("IDLE"):
                m.d.sync += [at.eq(0), seen.eq(starts)]
                with m.If(ended):
                    m.d.sync += ended.eq(due)
                    m.next = "READ"
            # READ: reads a row; ends when the poke of the one before has been taken.
            with m.State("READ"):
                m.d.comb += rows.read0.enable.eq(1)
                m.d.sync += touched.eq(meets)
                with m.If(~self.poke.valid):
                    m.next = "ROW"
            # ROW: keeps the row; one cycle.
            with m.State("ROW"):
                m.d.sync += row.eq(rows.read0.row)
                m.next = "AGE"
            # AGE: how many steps it has been running, and may; one cycle.
            with m.State("AGE"):
                answer, pause = STEPS[TimerKind.ANSWER], STEPS[TimerKind.PAUSE]
                m.d.sync += [
                    elapsed.eq(stamps[row.shift] - row.stamp),
                    steps.eq(
                        Mux(
                            row.kind == TimerKind.ANSWER,
                            answer[0],
                            Mux(row.odd, pause[1], pause[0]),
                        )
                    ),
                ]
                m.next = "JUDGE"
            # JUDGE: stops the timer if it is over; ends when the write port is free for that.
            with m.State("JUDGE"):
                with m.If(~(setting & over)):
                    with m.If(over):
                        self._stop(m, at)
                        m.d.sync += [self.poke.valid.eq(1), self.poke.payload.qp.eq(at)]
                    with m.Elif(row.kind != TimerKind.OFF):
                        m.d.sync += seen.eq(seen | starts | (1 << row.shift))
                    m.d.sync += at.eq(at + 1)
                    m.next = "READ"
                    with m.If(at == self._qps - 1):
                        m.next = "END"
            # END: a class in which nothing was seen has no timer any more; one cycle.
            with m.State("END"):
                m.d.sync += used.eq(seen | starts)
                m.next = "IDLE"
        m.d.comb += self.ready.eq(~sweep.ongoing("CLEAR"))
        require(m, platform, self.ready | ~self.set0.valid, "the table's timers are always taken")
        return m

    def _stop(self, m: Module, at: Signal) -> None:
        """Stop the timer of QP ``at``."""
        write = m.submodules.rows.write
        m.d.comb += [write.index.eq(at), write.row.eq(0), write.enable.eq(1)]

    def _time(self, m: Module):
        """Counts ticks while any timer runs.

        Returns the count of each class, a pulse when that of a class in use has moved on, the
        classes in use, and those that the sweep has seen in use."""
        # Names that sim/models/ticks.hpp looks for: a simulation passes over ticks without effect.
        used, seen = Signal(32, name="used"), Signal(32)
        # Counts up to the same end as the epoch's, which a simulation never jumps over. No choice
        # and no reset, of which Verilog makes variables that would also change in each cycle.
        age = Signal(range(EPOCH), reset_less=True)
        ends, runs, goes_on = Signal(), Signal(), Signal()
        now, own = Signal(31 + STAMP, name="ticks"), Signal(32, name="own")
        moved = Signal(2, name="moved")
        m.d.comb += [
            ends.eq(age == EPOCH - 1),
            runs.eq(used != 0),
            goes_on.eq(~ends & runs),
        ]
        m.d.sync += [
            age.eq(
                ((EPOCH - self.tick) & (~goes_on).replicate(16))
                | ((age + 1) & goes_on.replicate(16))
            ),
            moved.eq(Cat(ends & runs, moved)),
            own.eq(Cat(~now[:n].any() if n else 1 for n in range(32))),  # moved with the last tick
        ]
        with m.If(ends & runs):
            increment(m, now)
        return (
            Array(now[n : n + STAMP] for n in range(32)),
            moved[1] & ((own & used) != 0),
            used,
            seen,
        )

    def _sets(self, m: Module, stamps: Array) -> tuple[Signal, Signal, Signal]:
        """Take a set, look in the next cycle whether it changes anything, as ports and the timer's
        row are late, and write the row in the one behind.

        Returns the QP of the row that is written in this cycle; the class that got a timer in the
        cycle before, one bit for each; and whether a row is written."""
        rows, chosen = m.submodules.rows, Signal(TimerSet)
        asked, taken = Signal(TimerSet, reset_less=True), Signal()  # what was taken,
        departs = Signal()  # ... which is that of a departure
        qp, row = Signal(ceil_log2(self._qps), reset_less=True), Signal(TimerRow, reset_less=True)
        setting, starts = Signal(), Signal(32)
        with m.If(self.set0.valid):
            m.d.comb += chosen.eq(self.set0.payload)
        with m.Elif(self.set1.valid):
            m.d.comb += chosen.eq(self.set1.payload)
        with m.Else():
            m.d.comb += chosen.eq(self.set2.payload)
        pause, codes = asked.kind == TimerKind.PAUSE, range(32)
        shifts, odds = (
            Array(_class(TimerKind.PAUSE, code)[n] for code in codes)[asked.code] for n in range(2)
        )
        now = rows.read2.row
        m.d.comb += [
            self.set1.ready.eq(self.ready & ~self.set0.valid),
            # What was taken in the cycle before may be of the same QP, and is not in its row yet.
            self.set2.ready.eq(self.ready & ~self.set0.valid & ~self.set1.valid & ~taken),
            rows.read2.index.eq(self.set2.payload.qp),
            rows.read2.enable.eq(1),
            rows.write.index.eq(qp),
            rows.write.row.eq(row),
            rows.write.row.stamp.eq(stamps[row.shift]),
            rows.write.enable.eq(setting),
        ]
        m.d.sync += [
            asked.eq(chosen),
            taken.eq(
                self.ready
                & (self.set0.valid | self.set1.valid | (self.set2.valid & self.set2.ready))
            ),
            departs.eq(~self.set0.valid & ~self.set1.valid),
            setting.eq(taken & ~(departs & (now.kind != TimerKind.OFF) & ~now.idle)),
            qp.eq(asked.qp),
            row.kind.eq(asked.kind),
            row.shift.eq(Mux(pause, shifts, asked.code)),
            row.odd.eq(pause & odds),
            row.idle.eq(asked.idle & (asked.kind == TimerKind.ANSWER)),
            starts.eq((setting & (row.kind != TimerKind.OFF)) << row.shift),
        ]
        return qp, starts, setting
