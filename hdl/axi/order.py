"""What must not overtake writes: AXI gives no order between its channels, the host port does.

A write burst is *taken* when its first beat has been taken from the card, and *done* when its
response has come. Responses of one AWID come in order, so a count of bursts says which are done.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Skid

__all__ = ["Fence"]


class Fence(wiring.Component):
    """Holds each beat until every write burst that was taken before it is done.

    For each burst in flight it is noted how many beats had come before: up to there the beats may
    leave while this burst is the oldest. Nothing is compared with times or with counts that wrap,
    so a beat may wait for as long as it likes.

    Parameters: ``shape`` of a beat; ``depth``: beats that wait, a power of two; ``bursts``: the
    most that are taken and not done. Members: ``i``, ``o``; ``taken``, ``done``: a burst in this
    cycle. A burst that is taken in the same cycle as a beat is not before it.
    Latency: 3 cycles. Throughput: a beat a cycle. ``o.valid`` and ``i.ready`` are registers.
    Reset: empty, no burst in flight.
    """

    def __init__(self, *, shape, depth: int, bursts: int):
        if bursts < 1:
            raise ValueError(f"Bursts must be at least 1, not {bursts!r}")
        self._shape, self._depth, self._bursts = shape, depth, bursts
        beats = stream.Signature(shape)
        super().__init__({"i": In(beats), "o": Out(beats), "taken": In(1), "done": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = StreamFifo(shape=self._shape, depth=self._depth)
        m.submodules.out = out = Skid(shape=self._shape)
        # Counts of beats, come and gone; at most ``depth`` lie between them.
        bits = ceil_log2(self._depth) + 1
        come, gone, limit = Signal(bits), Signal(bits), Signal(bits)
        index = ceil_log2(max(2, self._bursts))
        m.submodules.marks = marks = memory.Memory(shape=bits, depth=1 << index, init=[])
        put, get = marks.write_port(), marks.read_port(domain="comb")
        newest, oldest = Signal(index + 1), Signal(index + 1)
        m.d.comb += [
            put.addr.eq(newest),
            put.data.eq(come),
            put.en.eq(self.taken),
            get.addr.eq(oldest),
            limit.eq(Mux(newest == oldest, come, get.data)),
        ]
        m.d.sync += [newest.eq(newest + self.taken), oldest.eq(oldest + self.done)]
        passes = Signal()
        m.d.comb += [passes.eq(gone != limit)]
        wiring.connect(m, wiring.flipped(self.i), waiting.i)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        m.d.comb += [
            out.i.payload.eq(waiting.o.payload),
            out.i.valid.eq(waiting.o.valid & passes),
            waiting.o.ready.eq(out.i.ready & passes),
        ]
        m.d.sync += [
            come.eq(come + (self.i.valid & self.i.ready)),
            gone.eq(gone + (out.i.valid & out.i.ready)),
        ]
        return m
