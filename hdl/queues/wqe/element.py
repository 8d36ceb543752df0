"""The device-readable buffers of a chain, joined: any split gives the same bytes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.address import add_high, add_low
from hdl.common.count import add_up
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import QueueErrorCause

from ..ring.types import Segment
from .types import Word
from .word_join import UNIT_BYTES, WordJoin

__all__ = ["ElementReader"]

#: Bytes of one host read, and of the storage reserved for what is in flight.
READ_BYTES = 256
STORAGE_BYTES = 1024


class ElementReader(wiring.Component):
    """Reads the buffers of one element and gives its bytes as words of eight.

    Members: ``function`` (stable during an element); ``i`` segments up to the one with ``last``
    (length 0 only ends the element); ``o`` words, the last with ``last``, and with it ``length``
    (bytes of all buffers) and ``cause`` (of a broken chain, or HOST_READ).
    Only the first ``limit`` bytes are read and given; ``length`` counts all. Reads of up to 1 KiB
    are in flight, across buffers.
    Latency: a host read plus 7 cycles. Throughput: four bytes a cycle, whatever the data width: an
    element is some hundred bytes at most, and the join of four bytes is a small shifter.
    Reset: as BlockReader.
    """

    def __init__(self, *, config: NicConfig, limit: int):
        if not 1 <= limit <= 4096:
            raise ValueError(f"Limit must be 1 to 4096 bytes, not {limit!r}")
        self._width, self._limit = config.width, limit
        super().__init__(
            {
                "function": In(8),
                "i": In(stream.Signature(Segment)),
                "o": Out(stream.Signature(Word)),
                "length": Out(32),
                "cause": Out(QueueErrorCause),
                "read_client": Out(ReadClient(self._width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, lanes = self._width, self._width // 8
        client = self.read_client
        beats = STORAGE_BYTES // lanes
        kept = data.StructLayout({"data": width, "highest": ceil_log2(lanes)})
        m.submodules.fifo = beats_fifo = StreamFifo(shape=kept, depth=beats)
        m.submodules.join = join = WordJoin()
        connect(m, join.o, flipped(self.o))

        # Requests: a buffer at a time, as long as its beats have room.
        buffer, carry = Signal(Segment, reset_less=True), Signal()
        left, ended, cause = Signal(13), Signal(), Signal(QueueErrorCause)
        free = Signal(range(self._limit + 1), init=self._limit)  # bytes not asked for
        length = Signal(32)
        room = Signal(range(beats + 1), init=beats)
        reading = Signal(range(beats + 1))  # reads in flight
        chosen, next_chunk = Signal(), Signal(range(READ_BYTES + 1))  # the next read is worked out
        chunk = Signal(range(READ_BYTES + 1), reset_less=True)
        chunk_beats = Signal(range(beats + 1), reset_less=True)
        take, ask, popped, answered = Signal(), Signal(), Signal(), Signal()
        asked = Signal()  # in the cycle before; the next one comes another later
        freed = Signal()  # a beat was popped in the cycle before: the FIFO's RAM is late
        given, short = self.i.payload.length, Signal()
        m.d.comb += [
            # Not one carry chain of 32 bits, in front of others.
            short.eq(~given[len(free) :].any() & (given[: len(free)] < free)),
            self.i.ready.eq((left == 0) & ~ended),
            take.eq(self.i.valid & self.i.ready),
            next_chunk.eq(Mux(left < READ_BYTES, left, READ_BYTES)),
            client.req.valid.eq(chosen & (room >= chunk_beats)),
            client.req.payload.function.eq(self.function),
            client.req.payload.addr.eq(buffer.addr),
            client.req.payload.length.eq(chunk),
            ask.eq(client.req.valid & client.req.ready),
            answered.eq(client.rsp.valid & client.rsp.payload.last),
            self.length.eq(length),
            self.cause.eq(cause),
        ]
        # Two cycles: the last word is not there before.
        add_up(m, length, given, take)
        with m.If(~chosen):
            add_high(m, buffer.addr, carry)
        with m.If(take):
            m.d.sync += [
                buffer.eq(self.i.payload),
                left.eq(Mux(short, given[:13], free)),
                free.eq(Mux(short, free - given, 0)),
                ended.eq(self.i.payload.last),
            ]
            with m.If(self.i.payload.cause != QueueErrorCause.NONE):
                m.d.sync += cause.eq(self.i.payload.cause)
        with m.If(~chosen):
            m.d.sync += [
                chosen.eq(left != 0),
                chunk.eq(next_chunk),
                chunk_beats.eq((next_chunk + (lanes - 1)) >> ceil_log2(lanes)),
            ]
        with m.If(ask):
            m.d.sync += chosen.eq(0)
            m.d.sync += left.eq(left - chunk)
            add_low(m, buffer.addr, carry, buffer.addr, chunk)
        m.d.sync += [
            asked.eq(ask),
            freed.eq(popped),
            room.eq(room - Mux(asked, chunk_beats, 0) + freed),
            reading.eq(reading + asked - answered),
        ]

        # Responses: count the bytes, store.
        beat = client.rsp.payload
        m.d.comb += [
            beats_fifo.i.valid.eq(client.rsp.valid),
            beats_fifo.i.payload.data.eq(beat.data),
            beats_fifo.i.payload.highest.eq(self._highest(beat.keep)),
        ]
        with m.If(answered & beat.error & (cause == QueueErrorCause.NONE)):
            m.d.sync += cause.eq(QueueErrorCause.HOST_READ)

        # Narrow to units: the stored beat stays at the output until its last one is taken.
        stored = beats_fifo.o
        at = Signal(range(max(2, lanes // UNIT_BYTES)))
        unit, step = Signal(8 * UNIT_BYTES, reset_less=True), Signal(range(UNIT_BYTES + 1))
        load, ends_beat, advance = Signal(), Signal(), Signal()
        m.d.comb += [
            load.eq(stored.valid & ((step == 0) | advance)),
            ends_beat.eq(at == stored.payload.highest[2:]),
            stored.ready.eq(load & ends_beat),
            popped.eq(stored.valid & stored.ready),
        ]
        with m.If(advance):
            m.d.sync += step.eq(0)
        with m.If(load):
            m.d.sync += [
                unit.eq(stored.payload.data.word_select(at, 8 * UNIT_BYTES)),
                step.eq(Mux(ends_beat, stored.payload.highest[:2] + 1, UNIT_BYTES)),
                at.eq(Mux(ends_beat, 0, at + 1)),
            ]

        idle = (left == 0) & ~asked & (reading == 0) & (beats_fifo.level == 0)
        m.d.comb += [
            join.unit.eq(unit),
            join.count.eq(step),
            join.ends.eq(ended & idle),
            advance.eq(join.taken),
        ]
        with m.If(join.done):
            m.d.sync += [
                ended.eq(0),
                free.eq(self._limit),
                length.eq(0),
                cause.eq(QueueErrorCause.NONE),
            ]
        return m

    @staticmethod
    def _highest(keep):
        """Number of the highest one in ``keep``, whose ones are contiguous from bit 0.

        Bit k of n counts the multiples of 2**k from 1 to n, modulo 2: those in ``keep``.
        """
        return Cat(keep[1 << k :: 1 << k].xor() for k in range(ceil_log2(len(keep))))
