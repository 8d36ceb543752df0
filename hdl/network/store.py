"""A store of whole frames: what comes is speculative until its frame has ended well."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.shift import keep_count, keep_mask
from hdl.common.skid import Stage
from hdl.ports.packet import packet_beat, packet_stream

from .types import LENGTH_BITS

__all__ = ["FrameStore"]


class FrameStore(wiring.Component):
    """A ring of beats with a committed and a speculative end.

    Parameters: ``width`` in bits; ``depth`` in beats, ``frames``: powers of two; ``side``: shape of
    the facts of a frame; ``lossy``: beats are taken always, and a frame that finds no room is lost.
    Members: ``i`` frames, with ``keep`` and ``facts`` valid on the last beat: without ``keep`` the
    frame is forgotten. ``frame``: the facts of each frame that is kept, ``o`` its beats; the two do
    not wait for each other. ``length``: bytes of the frame at ``i`` up to this beat. ``ended``,
    ``kept``, ``lost``: a frame ends; it is kept; it is lost for want of room.
    A first beat in the middle of a frame forgets what came before: its source has been reset.
    Latency: 4 cycles from a last beat to ``o``, which has no gaps in a frame. Throughput: a beat a
    cycle each way. Errors: none. Reset: empty.
    """

    def __init__(self, *, width: int, depth: int, frames: int, side, lossy: bool = False):
        for name, value in (("Depth", depth), ("Frames", frames)):
            if value < 2 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, at least 2, not {value!r}")
        self._width, self._depth, self._frames = width, depth, frames
        self._side, self._lossy = side, lossy
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "keep": In(1),
                "facts": In(side),
                "length": Out(LENGTH_BITS + 1),
                "ended": Out(1),
                "kept": Out(1),
                "lost": Out(1),
                "frame": Out(stream.Signature(side)),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index, size = ceil_log2(self._depth), self._width // 8
        lanes = ceil_log2(size)
        row = data.StructLayout({"data": self._width, "tail": lanes, "last": 1})
        # Only beats of complete frames are read.
        m.submodules.ram = ram = Ram(shape=row, depth=self._depth, forward=False)
        m.submodules.frames = frames = StreamFifo(shape=self._side, depth=self._frames)
        connect(m, frames.o, flipped(self.frame))
        beat = self.i.payload
        # Ends and start count one bit more than the index, so that full is not empty.
        end, committed, start = (Signal(index + 1, name=n) for n in ("end", "committed", "start"))
        at, brimful, taken, passing = Signal(index + 1), Signal(), Signal(), Signal()
        # Behind a reset the rest of a frame is nobody's.
        missed, lost, fits = Signal(), Signal(init=1), Signal()
        count, before, total = Signal(lanes + 1), Signal(LENGTH_BITS + 1), Signal(LENGTH_BITS + 1)
        m.d.comb += [
            at.eq(Mux(beat.first, committed, end)),
            brimful.eq((at ^ start) == self._depth),
            self.i.ready.eq(1 if self._lossy else ~brimful & frames.i.ready),
            passing.eq(self.i.valid & self.i.ready),
            taken.eq(passing & ~brimful),
            missed.eq((lost & ~beat.first) | brimful),
            fits.eq(~missed & frames.i.ready),
            count.eq(keep_count(beat.keep)),
            total.eq(Mux(beat.first, 0, before) + count),
            self.length.eq(Mux(total[-1], 1 << LENGTH_BITS, total)),
            self.ended.eq(passing & beat.last),
            self.kept.eq(self.ended & self.keep & fits),
            self.lost.eq(self.ended & self.keep & ~fits),
            ram.write.index.eq(at),
            ram.write.row.data.eq(beat.data),
            ram.write.row.tail.eq(count - 1),
            ram.write.row.last.eq(beat.last),
            ram.write.enable.eq(taken),
            frames.i.payload.eq(self.facts),
            frames.i.valid.eq(self.kept),
        ]
        with m.If(passing):
            m.d.sync += [
                end.eq(at + taken),
                lost.eq(missed & ~beat.last),
                before.eq(self.length),
            ]
            with m.If(beat.last & ~self.kept):
                m.d.sync += end.eq(committed)
        with m.If(self.kept):
            m.d.sync += committed.eq(at + 1)
        self._read(m, ram, committed, start)
        return m

    def _read(self, m: Module, ram, committed: Signal, start: Signal) -> None:
        """Beats of complete frames, by way of a register behind the RAM."""
        m.submodules.output = output = Stage(shape=packet_beat(self._width))
        connect(m, output.o, flipped(self.o))
        ask, asked, first = Signal(), Signal(), Signal(init=1)
        row, beat = ram.read0.row, output.i.payload
        size = self._width // 8
        last = row.last
        m.d.comb += [
            ask.eq((committed != start) & (~asked | output.i.ready)),
            ram.read0.index.eq(start),
            ram.read0.enable.eq(ask),
            output.i.valid.eq(asked),
            beat.data.eq(row.data),
            beat.keep.eq(Mux(last, keep_mask(row.tail, size) << 1 | 1, (1 << size) - 1)),
            beat.first.eq(first),
            beat.last.eq(last),
        ]
        m.d.sync += asked.eq(ask | (asked & ~output.i.ready))
        with m.If(ask):
            m.d.sync += start.eq(start + 1)
        with m.If(asked & output.i.ready):
            m.d.sync += first.eq(last)
