"""What the cutter cuts: one chunk after another, and the payload's beats."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.packet import packet_stream
from hdl.common.skid import Skid

from .types import Chunk

__all__ = ["ChunkCursor", "PayloadBeats"]

#: Payload beats that are stored, with the current one.
BEATS = 8


class ChunkCursor(wiring.Component):
    """Walks over the aligned beats of one chunk after another.

    Members: ``chunks`` In: stream of Chunk; ``valid`` Out: there is a chunk, and the others of
    these hold: ``chunk``; ``fresh``: nothing of it was used yet; ``start``: lane of its next byte;
    ``stop``: how far it reaches from lane 0 of that beat on; ``ends``: no further than that beat,
    in which it has ``rest`` bytes, which are ``rest_less`` and one. ``used`` In: go on to the next
    beat; with ``close`` In to the next chunk.
    Latency: 1 cycle. Throughput: one beat per cycle, no gap between chunks. Reset: no chunk.
    """

    def __init__(self, *, width: int):
        self._lanes = width // 8
        bits = ceil_log2(self._lanes)
        super().__init__(
            {
                "chunks": In(stream.Signature(Chunk)),
                "valid": Out(1),
                "chunk": Out(Chunk),
                "fresh": Out(1),
                "start": Out(bits),
                "stop": Out(14),
                "ends": Out(1),
                "rest": Out(bits + 1),
                "rest_less": Out(bits + 1),
                "used": In(1),
                "close": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._lanes
        bits = ceil_log2(lanes)
        m.submodules.next = chunks = Skid(shape=Chunk)
        wiring.connect(m, wiring.flipped(self.chunks), chunks.i)
        coming = chunks.o.payload
        length = coming.length[: bits + 1]
        chunk, ends = Signal(Chunk, reset_less=True), Signal(reset_less=True)
        start, total = Signal(bits, reset_less=True), Signal(14, reset_less=True)
        rest, less = (Signal(bits + 1, reset_less=True) for _ in range(2))
        reach, goes_on = Signal(14), Signal(bits + 1)
        whole, tail = total[bits:], total[:bits]
        m.d.comb += [
            self.chunk.eq(chunk),
            self.start.eq(start),
            self.stop.eq(total),
            self.ends.eq(ends),
            self.rest.eq(rest),
            self.rest_less.eq(less),
            goes_on.eq(Cat(tail, ~whole[0])),
            reach.eq(coming.length + coming.addr[:bits]),
        ]
        with m.If(~self.valid | (self.used & self.close)):
            m.d.comb += chunks.o.ready.eq(1)
            m.d.sync += [
                chunk.eq(coming),
                self.valid.eq(chunks.o.valid),
                start.eq(coming.addr),
                total.eq(reach),
                ends.eq(reach <= lanes),
                rest.eq(coming.length),
                # Bit by bit: a carry chain would be late.
                less.eq(Cat(bit ^ ~length[:n].any() for n, bit in enumerate(length))),
                self.fresh.eq(1),
            ]
        with m.Elif(self.used):
            m.d.sync += [
                start.eq(0),
                whole.eq(whole - 1),
                ends.eq((whole[2:] == 0) & ~(whole[1] & (whole[0] | tail.any()))),
                rest.eq(goes_on),
                less.eq(goes_on - 1),
                self.fresh.eq(0),
            ]
        return m


class PayloadBeats(wiring.Component):
    """Keeps payload beats, among them the current one, which may be looked at again.

    Members: ``payload`` In: packet stream; ``valid`` Out: a beat behind the current one is there;
    ``data``, ``last`` Out: that beat, or with ``again`` In the current one; ``consume`` In: the
    beat behind becomes the current one.
    Latency: 1 cycle. Throughput: one beat per cycle. Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "payload": In(packet_stream(width)),
                "valid": Out(1),
                "data": Out(width),
                "last": Out(1),
                "again": In(1),
                "consume": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        row = data.StructLayout({"data": self._width, "last": 1})
        m.submodules.beats = beats = memory.Memory(shape=row, depth=BEATS, init=[])
        put, get = beats.write_port(), beats.read_port(domain="comb")
        read, stored, push = Signal(range(BEATS)), Signal(range(BEATS)), Signal()
        m.d.comb += [
            self.payload.ready.eq(stored != BEATS - 1),  # the current one stays stored
            push.eq(self.payload.valid & self.payload.ready),
            put.en.eq(push),
            put.data.data.eq(self.payload.p.data),
            put.data.last.eq(self.payload.p.last),
            get.addr.eq(read - self.again),
            self.valid.eq(stored != 0),
            self.data.eq(get.data.data),
            self.last.eq(get.data.last),
        ]
        m.d.sync += [put.addr.eq(put.addr + push), read.eq(read + self.consume)]
        with m.If(push != self.consume):
            m.d.sync += stored.eq(Mux(push, stored + 1, stored - 1))
        return m
