"""Events of a QP, several at a time, as the words to count them in, one after the other."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.counter_names import QP_COUNTER_SLOTS, QP_COUNTERS

from .types import Counted

__all__ = ["WAITING", "EventWords"]

#: Entries that may wait: all whose checks were pending (``commit.PENDING``) come in 2 cycles each,
#: with three events at the most, behind those that came while the counters of a QP were cleared.
WAITING = 64


class EventWords(wiring.Component):
    """A queue of ``Counted``; each event of an entry leaves as one ``o``: slot and pair.

    Members: ``counted`` In; ``o`` Out: the number of the word that counts the event; ``waits``:
    entries wait behind the one in hand.
    Latency: 4 cycles. Throughput: one entry a cycle in, one event a cycle out.
    Errors: none; the queue is as deep as what can come at once. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._pairs = ceil_log2(config.qps)
        word = data.StructLayout({"slot": ceil_log2(QP_COUNTER_SLOTS), "qp": self._pairs})
        super().__init__(
            {
                "counted": In(stream.Signature(Counted, always_ready=True)),
                "o": Out(stream.Signature(word)),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = StreamFifo(shape=Counted, depth=WAITING)
        # What is reported arrives late in the cycle.
        reported, counted = Signal(), Signal(Counted, reset_less=True)
        wanted = Cat(counted.events[name] for name in QP_COUNTERS)
        m.d.sync += [reported.eq(self.counted.valid), counted.eq(self.counted.payload)]
        m.d.comb += [
            waiting.i.valid.eq(reported & (wanted != 0)),
            waiting.i.payload.eq(counted),
            self.waits.eq(waiting.o.valid),
        ]
        # The entry in hand: what is left to count, and the first of it.
        oldest = waiting.o.payload
        in_hand, qp = Signal(), Signal(self._pairs, reset_less=True)
        left, first = Signal(len(QP_COUNTERS)), Signal(len(QP_COUNTERS))
        for number in range(len(QP_COUNTERS)):
            m.d.comb += first[number].eq(left[number] & ~left[:number].any())
            with m.If(first[number]):
                m.d.comb += self.o.payload.slot.eq(number)
        m.d.comb += [self.o.valid.eq(in_hand), self.o.payload.qp.eq(qp)]
        last = (left & ~first) == 0
        with m.If(~in_hand | (self.o.ready & last)):
            m.d.comb += waiting.o.ready.eq(1)
            m.d.sync += [
                in_hand.eq(waiting.o.valid),
                qp.eq(oldest.qp),
                left.eq(Cat(oldest.events[name] for name in QP_COUNTERS)),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += left.eq(left & ~first)
        return m
