"""Reads the inline bytes of a line."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hdl.common.contract import require, taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.pack import chunk_beat
from hdl.common.ram import BLOCK_ROWS
from hdl.common.skid import Stage
from hdl.ports.jobs import WqeRead

__all__ = ["InlineReader", "SLOTS"]

#: Slots of a line (512 bytes of inline payload).
SLOTS = 32


class InlineReader(wiring.Component):
    """Copies ``length`` bytes (1 to 512) from byte ``offset`` (a multiple of 16) of a line.

    Members: ``start`` (only when ``ready``) with ``line``, ``offset``, ``length``; ``done`` in the
    cycle after which the line is not read any more; ``slot*`` as in SgeWalk; ``o`` stream of
    ``chunk_beat``, with ``end`` on the last.
    ``ready`` promises room for a whole line, so the copy never waits, and that nothing is read from
    the next cycle on.
    Latency: the copy takes a cycle per 16 bytes and 2 more, in which the next copy can begin; the
    first beat comes 5 cycles after ``start``.
    Throughput: 16 bytes per cycle; at 64 bit, 8 leave per cycle.
    """

    def __init__(self, *, width: int):
        if width < 64 or width & (width - 1):
            raise ValueError(f"Width must be a power of two of at least 64 bits, not {width!r}")
        self._width = width
        super().__init__(
            {
                "start": In(1),
                "line": In(8),
                "offset": In(9),
                "length": In(13),
                "ready": Out(1),
                "done": Out(1),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
                "o": Out(stream.Signature(chunk_beat(width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        piece = data.StructLayout({"data": 128, "count": 5, "end": 1})
        m.submodules.fifo = fifo = StreamFifo(shape=piece, depth=BLOCK_ROWS)
        m.submodules.out = pieces = Stage(shape=piece)
        connect(m, fifo.o, pieces.i)
        line, place = Signal(8, reset_less=True), Signal(5, reset_less=True)
        left, count, ends = Signal(13), Signal(5), Signal()
        running, read, read_end = Signal(), Signal(), Signal(reset_less=True)
        read_count = Signal(5, reset_less=True)
        m.d.comb += [
            # two slots may be in flight to the FIFO
            self.ready.eq((~running | ends) & (fifo.level <= BLOCK_ROWS - SLOTS - 2)),
            ends.eq(left <= 16),
            count.eq(Mux(ends, left, 16)),
            self.slot.line.eq(line),
            self.slot.slot.eq(place),
            self.slot_enable.eq(running),
            self.done.eq(read & read_end),
            fifo.i.valid.eq(read),
            fifo.i.payload.data.eq(self.slot_data),
            fifo.i.payload.count.eq(read_count),
            fifo.i.payload.end.eq(read_end),
        ]
        m.d.sync += [read.eq(running), read_count.eq(count), read_end.eq(ends)]
        with m.If(running):
            m.d.sync += [place.eq(place + 1), left.eq(left - 16), running.eq(~ends)]
        with m.If(self.start):
            m.d.sync += [
                running.eq(1),
                line.eq(self.line),
                place.eq(self.offset[4:]),
                left.eq(self.length),
            ]

        require(m, platform, self.ready | ~self.start, "a copy begins only when there is room")
        taken_at_once(m, platform, fifo.i, "there is room for all of a copy")

        slot, beat = pieces.o.payload, self.o.payload
        m.d.comb += self.o.valid.eq(pieces.o.valid)
        if self._width >= 128:
            m.d.comb += [
                pieces.o.ready.eq(self.o.ready),
                beat.data.eq(slot.data),
                beat.count.eq(slot.count),
                beat.end.eq(slot.end),
            ]
        else:
            upper = Signal()
            final = upper | (slot.count <= 8)
            m.d.comb += [
                pieces.o.ready.eq(self.o.ready & final),
                beat.data.eq(Mux(upper, slot.data[64:], slot.data[:64])),
                beat.count.eq(Mux(upper, slot.count - 8, Mux(final, slot.count, 8))),
                beat.end.eq(slot.end & final),
            ]
            with m.If(self.o.valid & self.o.ready):
                m.d.sync += upper.eq(~final)
        return m
