"""Which requests have left the card: what may be answered, and when an answer is overdue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.common.fifo import StreamFifo
from hdl.common.tables import TableRead, TableWrite
from hdl.ports.context import ContextRead
from hdl.ports.headers import PACKET_GENERATION, Departure
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QpSent

from ..recovery.qp_timers import TimerKind, TimerSet

__all__ = ["WAITING", "Departures"]

#: Departures that wait to be noted. The requester makes one in 4 cycles, so with rows in RAM they
#: wait only while a QP that goes back is noted, or while the gate in front of egress, which lets a
#: packet pass in 2 cycles, empties itself: of 64 packets half wait here.
WAITING = 64


class Departures(wiring.Component):
    """Notes in ``qp_sent`` each request that leaves the card, and starts its QP's timer.

    Spec: IBTA vol 1, 9.7.6.1.3 (the timer runs from the packet that asks for an acknowledgement),
    9.7.5.2 (an answer to what was not sent is a ghost). A packet that was handed over before its QP
    went back may leave afterwards. It may be answered, so ``psn`` counts it, but nobody waits for
    that answer: the generation tells. A QP that has gone back waits for none until it has sent
    again, however long its turn takes.

    Parameters: ``waiting``: departures that may wait.
    Members: ``departed`` In: what egress says of a request, not more often than every fourth cycle
    with more than ``waiting`` packets beyond that, nor than their rows come; ``restart`` In: a QP
    has gone back, and is in a new generation since the cycle before. ``context``, ``write``: a QP's
    row in ``qp_sent``; ``generation``: of the QP; ``timer`` Out: it waits for an answer from now
    on, if it does not already. Latency: 4 cycles to the row and to the timer. Throughput: one in 4
    cycles, as a row is late and what it becomes is late behind it. Errors: none. Reset: nothing is
    noted.
    """

    def __init__(self, *, waiting: int = WAITING):
        self._waiting = waiting
        super().__init__(
            {
                "departed": In(stream.Signature(Departure, always_ready=True)),
                "restart": In(stream.Signature(QpNumber)),
                "context": Out(ContextRead("departures")),
                "write": Out(TableWrite(QpNumber, QpSent)),
                "generation": Out(TableRead(QpNumber, PACKET_GENERATION)),
                "timer": Out(stream.Signature(TimerSet)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = StreamFifo(shape=Departure, depth=self._waiting)
        departure, context = queue.o.payload, self.context
        row, kept = context.rows.sent, Signal(QpSent, reset_less=True)
        back, back_qp = Signal(), Signal(QpNumber, reset_less=True)  # a QP that has gone back
        asks, newer = Signal(), Signal()  # of the departure, beside its row, which is ``kept``
        psn = Signal(24, reset_less=True)  # of the departure, which comes out of a RAM
        m.d.comb += [
            queue.i.valid.eq(self.departed.valid),
            queue.i.payload.eq(self.departed.payload),
            self.generation.index.eq(departure.qp),
            context.number.eq(departure.qp),
            asks.eq(departure.asks & (departure.generation == self.generation.row)),
            self.timer.payload.kind.eq(TimerKind.ANSWER),
            self.write.row.eq(row),
        ]
        require(m, platform, queue.i.ready | ~queue.i.valid, "each departure is noted")
        m.d.comb += self.restart.ready.eq(~back)
        with m.If(self.restart.valid & self.restart.ready):
            m.d.sync += [back.eq(1), back_qp.eq(self.restart.payload)]
        with m.If(self.timer.ready):
            m.d.sync += self.timer.valid.eq(0)
        with m.FSM(name="note"):
            # IDLE: reads the row of a QP that has gone back, or of the oldest departure. Ends with
            # one, a departure when the timer of the one before has been taken.
            with m.State("IDLE"):
                m.d.sync += self.write.index.eq(departure.qp)
                with m.If(back):
                    m.d.comb += [context.enable.eq(1), context.number.eq(back_qp)]
                    m.d.sync += self.write.index.eq(back_qp)
                    m.next = "BACK"
                with m.Elif(queue.o.valid & (~self.timer.valid | self.timer.ready)):
                    m.d.comb += context.enable.eq(1)
                    m.next = "DEPARTED"
            # BACK: no answer is waited for; ends when the row is here.
            with m.State("BACK"), m.If(context.valid):
                m.d.comb += [self.write.row.waits.eq(0), self.write.enable.eq(1)]
                m.d.sync += back.eq(0)
                m.next = "IDLE"
            # DEPARTED: keeps the row; ends when it is here.
            with m.State("DEPARTED"):
                m.d.sync += [kept.eq(row), psn.eq(departure.psn)]
                with m.If(context.valid):
                    m.next = "COMPARE"
            # COMPARE: compares it with the departure, and reads the QP's generation, as late as can
            # be; one cycle.
            with m.State("COMPARE"):
                m.d.comb += self.generation.enable.eq(1)
                m.d.sync += newer.eq(~(psn - kept.psn)[23])
                m.next = "NOTE"
            # NOTE: the row is written, and the timer started; one cycle.
            with m.State("NOTE"):
                m.d.comb += [
                    queue.o.ready.eq(1),
                    self.write.row.eq(kept),
                    self.write.enable.eq(1),
                ]
                with m.If(newer):
                    m.d.comb += self.write.row.psn.eq(psn)
                with m.If(asks):
                    m.d.comb += [
                        self.write.row.asked.eq(psn),
                        self.write.row.waits.eq(1),
                    ]
                m.d.sync += [
                    self.timer.payload.qp.eq(departure.qp),
                    self.timer.payload.code.eq(departure.timeout),
                    self.timer.valid.eq(asks & (departure.timeout != 0)),  # 0: it waits for ever
                ]
                m.next = "IDLE"
        return m
