"""A store of whole frames: what comes is speculative until its frame has ended well."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.ram import Ram
from hdl.common.shift import keep_count, keep_mask
from hdl.common.skid import Stage

from .types import LENGTH_BITS, LONGEST_FRAME

__all__ = ["FrameStore"]

#: Beats and frames that may still come when there is no room for more.
MARGIN = 8


class FrameStore(wiring.Component):
    """A ring of beats with a committed and a speculative end.

    Parameters: ``width`` in bits; ``depth`` in beats, ``frames``: powers of two; ``side``: shape of
    the facts of a frame; ``lossy``: beats are taken always, and a frame that finds no room is lost.
    Members: ``i`` frames, with ``keep`` and ``facts`` valid on the last beat: without ``keep`` the
    frame is forgotten. ``frame``: ``facts`` and length of each frame that is kept, ``o`` its beats;
    the two do not wait for each other. ``ended``: a frame has ended, ``length``: its bytes;
    ``kept``: it is kept; ``lost``: it finds no room, or is too long.
    A first beat in the middle of a frame forgets what came before: its source has been reset.
    Latency: 6 cycles from a last beat to ``o``, which has no gaps in a frame. Throughput: a beat a
    cycle each way. Errors: none. Reset: empty.
    """

    def __init__(self, *, width: int, depth: int, frames: int, side, lossy: bool = False):
        for name, value in (("Depth", depth), ("Frames", frames)):
            if value < 2 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, at least 2, not {value!r}")
        self._width, self._depth, self._frames = width, depth, frames
        self._side, self._lossy = side, lossy
        self._facts = data.StructLayout({"length": LENGTH_BITS, "side": side})
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "keep": In(1),
                "facts": In(side),
                "length": Out(LENGTH_BITS),
                "ended": Out(1),
                "kept": Out(1),
                "lost": Out(1),
                "frame": Out(stream.Signature(self._facts)),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index, lanes = ceil_log2(self._depth), ceil_log2(self._width // 8)
        row = data.StructLayout({"data": self._width, "tail": lanes, "last": 1})
        # Only beats of complete frames are read.
        m.submodules.ram = ram = Ram(shape=row, depth=self._depth, forward=False)
        m.submodules.frames = frames = StreamFifo(shape=self._facts, depth=self._frames)
        connect(m, frames.o, flipped(self.frame))
        valid, beat, keep, side, count, total = self._measure(m)
        # Ends and start count one bit more than the index, so that full is not empty.
        end, committed, start = (Signal(index + 1, name=n) for n in ("end", "committed", "start"))
        at, used, brimful, taken = Signal(index + 1), Signal(index + 1), Signal(), Signal()
        # Behind a reset the rest of a frame is nobody's.
        missed, lost, fits = Signal(), Signal(init=1), Signal()
        m.d.comb += [
            at.eq(Mux(beat.first, committed, end)),
            brimful.eq((at ^ start) == self._depth),
            taken.eq(valid & ~brimful),
            missed.eq((lost & ~beat.first) | brimful),
            fits.eq(~missed & frames.i.ready & (total <= LONGEST_FRAME)),
            self.length.eq(total),
            self.ended.eq(valid & beat.last),
            self.kept.eq(self.ended & keep & fits),
            self.lost.eq(self.ended & keep & ~fits),
            ram.write.index.eq(at),
            ram.write.row.data.eq(beat.data),
            ram.write.row.tail.eq(count - 1),
            ram.write.row.last.eq(beat.last),
            ram.write.enable.eq(taken),
            frames.i.payload.side.eq(side),
            frames.i.payload.length.eq(total),
            frames.i.valid.eq(self.kept),
        ]
        with m.If(valid):
            m.d.sync += [end.eq(at + taken), lost.eq(missed & ~beat.last)]
            with m.If(beat.last & ~self.kept):
                m.d.sync += end.eq(committed)
        with m.If(self.kept):
            m.d.sync += committed.eq(at + 1)
        if self._lossy:
            m.d.comb += self.i.ready.eq(1)
        else:
            ample = Signal()
            m.d.sync += [
                used.eq(end - start),
                ample.eq(frames.level <= self._frames - MARGIN),
                self.i.ready.eq((used <= self._depth - MARGIN) & ample),
            ]
        self._read(m, ram, committed, start)
        return m

    def _measure(self, m: Module):
        """Beats two cycles later: with what belongs to them, their bytes, and those of the frame so
        far, which stay at the most that there may be."""
        lanes, passing = ceil_log2(self._width // 8), Signal()
        valid, count = Signal(2), Signal(lanes + 1, reset_less=True)
        facts = data.StructLayout({"beat": packet_beat(self._width), "keep": 1, "side": self._side})
        now, earlier = Signal(facts, reset_less=True), Signal(facts, reset_less=True)
        bytes_now = Signal.like(count)
        total = Signal(LENGTH_BITS, reset_less=True)
        sum_ = Mux(earlier.beat.first, 0, total) + count
        m.d.comb += passing.eq(self.i.valid & self.i.ready)
        m.d.sync += [
            valid.eq(Cat(passing, valid)),
            earlier.beat.eq(self.i.payload),
            earlier.keep.eq(self.keep),
            earlier.side.eq(self.facts),
            count.eq(keep_count(self.i.payload.keep)),
        ]
        with m.If(valid[0]):
            m.d.sync += [
                now.eq(earlier),
                bytes_now.eq(count),
                total.eq(Mux(sum_[LENGTH_BITS], (1 << LENGTH_BITS) - 1, sum_)),
            ]
        return valid[1], now.beat, now.keep, now.side, bytes_now, total

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
