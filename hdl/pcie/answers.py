"""Answers to the host, each behind the writes that were taken before it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.fifo import StreamFifo

from .completer import cc_beat
from .posted import IN_FLIGHT

__all__ = ["Answers"]

#: Answers that may wait, and how many wait when no more requests are wanted. AMD's block may then
#: still have credits for 32, and four are on their way.
DEPTH, ENOUGH = 64, 24
#: Bits of the number of a write.
NUMBER = 8


class Answers(wiring.Component):
    """Lets answers wait for writes, and requests of the host pass meanwhile.

    A read of a register tells of writes to memory, so its answer must not pass them. But requests
    of the host must not wait for it: the host may take no writes before the card has taken
    its own (PCI Express Base Specification, "Transaction Ordering": taking a posted request may not
    depend on sending anything).

    Members: ``i``, ``o``: completions, in their order; ``in_flight``, ``done``: of
    ``PostedWrites``; ``wants`` Out: there is room for what AMD's block may deliver.
    Waits: an answer waits until all writes that were in flight when it came are done. ``i`` waits
    when ``DEPTH`` answers do. AMD's block delivers no such request then; with P-Tile, requests of
    the host wait behind 64 reads of registers that wait for writes.
    Latency: 4 cycles without writes. Throughput: an answer a cycle. Errors: none. Reset: empty.
    """

    def __init__(self):
        beats = stream.Signature(cc_beat())
        super().__init__(
            {
                "i": In(beats),
                "o": Out(beats),
                "in_flight": In(range(IN_FLIGHT + 1)),
                "done": In(range(IN_FLIGHT + 1)),
                "wants": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = StreamFifo(shape=cc_beat(), depth=DEPTH)
        # The number of the write that each answer waits for, taken out as soon as it is done.
        m.submodules.marks = marks = StreamFifo(shape=NUMBER, depth=DEPTH)
        connect(m, flipped(self.i), waiting.i)
        over, ahead, passed = Signal(NUMBER), Signal(NUMBER), Signal()
        free, leaves = Signal(range(DEPTH + 1)), Signal()  # answers that may leave
        any_free = Signal()
        m.d.comb += [
            marks.i.valid.eq(waiting.i.valid & waiting.i.ready),
            marks.i.payload.eq(over + self.in_flight),
            ahead.eq(marks.o.payload - over),
            passed.eq(marks.o.valid & (ahead[-1] | (ahead == 0))),
            marks.o.ready.eq(passed),
            self.o.payload.eq(waiting.o.payload),
            self.o.valid.eq(waiting.o.valid & any_free),
            leaves.eq(self.o.valid & self.o.ready),
            waiting.o.ready.eq(leaves),
        ]
        m.d.sync += [
            over.eq(over + self.done),
            free.eq(free + passed - leaves),
            any_free.eq(passed | (free > 1) | ((free == 1) & ~leaves)),
            self.wants.eq(waiting.level < ENOUGH),
        ]
        return m
