"""The first bytes of the frames that pass in one direction."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.packet import packet_beat
from hdl.common.ram import Ram
from hdl.common.shift import keep_count
from hdl.common.tables import TableRead
from hdl.config import TRACE_BYTES
from hdl.ports.trace import TIME_BITS, FrameFacts, FrameTap

__all__ = ["FrameRecorder"]


class FrameRecorder(wiring.Component):
    """Stores the first beats of each frame at ``i`` in the slot that the frame is given.

    Parameters: ``width`` in bits; ``frames``: slots of ``TRACE_BYTES``, a power of two.
    Members: ``i`` In: beats that pass. ``run`` In: frames that begin are recorded; ``restart`` In:
    that which is under way is not. ``snap`` In: bytes of a frame that are stored, rounded up to
    whole beats. ``now`` In: cycles. ``slot`` In: where the frame goes, which may change after
    ``takes`` Out: its last beat has come and it is recorded. ``ended`` Out, a cycle later: a frame
    has ended, ``recorded`` Out or not, with ``facts`` Out but the reason. ``data`` In: reads beats
    by {slot, beat}.
    Latency: 1 cycle to ``takes``. Throughput: a beat and a frame in each cycle.
    Errors: none; a frame that ends without its last beat leaves nothing but what is in its slot.
    Reset: between frames; the slots keep their contents.
    """

    def __init__(self, *, width: int, frames: int):
        if frames < 2 or frames & (frames - 1):
            raise ValueError(f"Frames must be a power of two, at least 2, not {frames!r}")
        self._width, self._frames = width, frames
        self._beats = TRACE_BYTES * 8 // width
        index = ceil_log2(frames * self._beats)
        super().__init__(
            {
                "i": In(FrameTap(width)),
                "run": In(1),
                "restart": In(1),
                "snap": In(range(TRACE_BYTES + 1)),
                "now": In(TIME_BITS),
                "slot": In(ceil_log2(frames)),
                "takes": Out(1),
                "ended": Out(1),
                "recorded": Out(1),
                "facts": Out(FrameFacts),
                "data": In(TableRead(index, width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size, beats = self._width // 8, self._beats
        # Whoever reads waits until the frame is there.
        m.submodules.ram = ram = Ram(shape=self._width, depth=self._frames * beats, forward=False)
        # A register of its own: nothing that passes waits for it or drives more for it.
        beat, valid = Signal(packet_beat(self._width), reset_less=True), Signal()
        m.d.sync += [valid.eq(self.i.valid), beat.eq(self.i.beat)]

        recording, records = Signal(), Signal()
        number = Signal(16 - ceil_log2(size))  # beats of the frame before this one
        at, time = Signal.like(number), Signal(TIME_BITS, reset_less=True)
        begun = Mux(beat.first, self.now, time)
        m.d.comb += [
            records.eq(Mux(beat.first, self.run, recording) & ~self.restart),
            at.eq(Mux(beat.first, 0, number)),
            ram.write.index.eq(Cat(at[: ceil_log2(beats)], self.slot)),
            ram.write.row.eq(beat.data),
            ram.write.enable.eq(valid & records & (at < beats) & ((at * size) < self.snap)),
            self.takes.eq(valid & beat.last & records),
            ram.read0.index.eq(self.data.index),
            ram.read0.enable.eq(self.data.enable),
            self.data.row.eq(ram.read0.row),
        ]
        with m.If(valid):
            m.d.sync += [recording.eq(records), number.eq(at + 1), time.eq(begun)]
        with m.Elif(self.restart):
            m.d.sync += recording.eq(0)
        m.d.sync += [
            self.ended.eq(valid & beat.last),
            self.recorded.eq(records),
            self.facts.time.eq(begun),
            self.facts.length.eq(at * size + keep_count(beat.keep)),
            self.facts.error.eq(beat.error),
        ]
        return m
