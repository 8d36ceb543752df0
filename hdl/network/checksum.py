"""Checksums that the driver leaves to the card: the sum of a frame, and its place in it."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.virtio_net_header import NET_HEADER, NetHeaderFlags
from hdl.common.contract import taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream
from hdl.common.shift import byte_mask
from hdl.common.skid import Skid

from .types import HEADER_BYTES, LENGTH_BITS
from .words import WordSum, folded

__all__ = ["Checksum", "ChecksumOf", "PutChecksum"]


class Checksum(data.Struct):
    """What becomes of a frame: ``value``, the first byte in bits 7:0, is put into its bytes from
    ``place`` on. ``wanted``: that is so."""

    wanted: 1
    place: LENGTH_BITS
    value: 16


class ChecksumOf(wiring.Component):
    """Adds up each frame from where its header says to its end.

    Spec: Virtio 1.2, 5.1.6.2 (VIRTIO_NET_HDR_F_NEEDS_CSUM); RFC 1071; RFC 768 (a sum of 0 is sent
    as all ones, which is the same number in TCP too).
    Members: ``valid``, ``beat`` a beat of a frame goes by, ``header`` in front of that frame;
    ``enable``: the driver may ask for it; ``kept``, ``KEPT`` cycles behind a last beat: the frame
    is kept; ``o`` what becomes of each frame that is kept.
    The bytes of the sum are swapped (see WordSum), and so in their order in the frame. Behind an
    odd number of bytes they are swapped once more.
    Latency: ``latency`` cycles and 3. Throughput: a beat a cycle. Errors: none; a place behind the
    frame's end is not written to. Reset: between two frames; none waits.
    """

    KEPT = 2

    def __init__(self, *, width: int, frames: int):
        self._width, self._frames = width, frames
        self._adds = WordSum(words=width // 16)
        #: From a last beat until its sum is there: mask, sum, folded once more.
        self.latency = 1 + self._adds.latency + 1
        super().__init__(
            {
                "valid": In(1),
                "beat": In(packet_beat(width)),
                "header": In(8 * HEADER_BYTES),
                "enable": In(1),
                "kept": In(1),
                "o": Out(stream.Signature(Checksum)),
            }
        )

    def _field(self, name: str) -> Value:
        place = NET_HEADER.place(name)
        return self.header[8 * place.offset : 8 * place.end]

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = StreamFifo(shape=Checksum, depth=self._frames)
        # The output of a block RAM is late.
        m.submodules.out = out = Skid(shape=Checksum)
        wiring.connect(m, sums.o, out.i)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        taken_at_once(m, platform, sums.i, "the store has no more frames than that")
        start, place = self._field("csum_start"), Signal(17, reset_less=True)
        asks = self._field("flags")[ceil_log2(NetHeaderFlags.NEEDS_CSUM)] & self.enable
        ends = self.valid & self.beat.last
        facts = data.StructLayout({"wanted": 1, "odd": 1, "place": LENGTH_BITS})
        # Facts and ends on their way beside the sum; each stage is a cycle.
        known = [Signal(facts, name=f"known{n}", reset_less=True) for n in range(self.latency)]
        ended = Signal(self.latency)
        m.d.comb += place.eq(start + self._field("csum_offset"))
        m.d.sync += [
            known[0].wanted.eq(asks & (place[LENGTH_BITS:] == 0)),
            known[0].odd.eq(start[0]),
            known[0].place.eq(place),
            ended.eq(Cat(ends, ended)),
            *(after.eq(before) for before, after in pairwise(known)),
        ]
        kept = Signal(self.latency - self.KEPT)
        m.d.sync += kept.eq(Cat(self.kept, kept))
        last = known[-1]
        sum_ = self._sum(m, self._masked(m, start))
        m.d.comb += [
            sums.i.valid.eq(ended[-1] & kept[-1]),
            sums.i.payload.wanted.eq(last.wanted),
            sums.i.payload.place.eq(last.place),
            sums.i.payload.value.eq(Mux(last.odd, Cat(sum_[8:], sum_[:8]), sum_)),
        ]
        return m

    def _masked(self, m: Module, start: Value) -> Signal:
        """The beat's bytes from ``start`` on, a cycle later."""
        size = self._width // 8
        lanes = ceil_log2(size)
        number, place = Signal(LENGTH_BITS - lanes), Signal(LENGTH_BITS - lanes)
        # A place behind the longest frame is behind all its beats.
        there, far = start[lanes:LENGTH_BITS], start[LENGTH_BITS:].any()
        counts, masked = Signal(size), Signal(self._width, reset_less=True)
        m.d.comb += place.eq(Mux(self.beat.first, 0, number))
        with m.If(self.valid):
            m.d.sync += number.eq(place + 1)
        with m.If(~far & (place >= there)):
            at = Cat(start[:lanes] <= lane for lane in range(size))
            m.d.comb += counts.eq(Mux(place == there, at, ~0) & self.beat.keep)
        m.d.sync += masked.eq(Mux(self.valid, self.beat.data & byte_mask(counts), 0))
        return masked

    def _sum(self, m: Module, masked: Signal) -> Signal:
        """The frame's checksum, when its last beat has gone by for so long."""
        m.submodules.adds = adds = self._adds
        first, total, value = Signal(), Signal(16), Signal(16, reset_less=True)
        m.d.sync += first.eq(self.valid & self.beat.first)
        m.d.comb += [adds.i.eq(masked), adds.first.eq(first), total.eq(folded(adds.o))]
        m.d.sync += value.eq(Mux(total.all(), ~0, ~total))
        return value


class PutChecksum(wiring.Component):
    """Puts checksums into the frames they belong to.

    Members: ``i``, ``o`` packet streams; ``checksum`` of each frame of ``i``, in their order, which
    is taken with the last beat. A frame waits for it, and has no gap that it had not before.
    Latency: 2 cycles. Throughput: a beat a cycle. ``i.ready`` follows ``o.ready``. Errors: none.
    Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "checksum": In(stream.Signature(Checksum)),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self._width // 8
        lanes = ceil_log2(size)
        move, valid, passing = Signal(), Signal(), Signal()
        number = Signal(LENGTH_BITS - lanes)
        told, beat = self.checksum.payload, Signal(packet_beat(self._width), reset_less=True)
        low, high = Signal(size), Signal(size, reset_less=True)  # the lanes of the two bytes
        lower = Signal(size, reset_less=True)
        spills, held, value = Signal(), Signal(), Signal(16, reset_less=True)
        hit = told.wanted & (told.place[lanes:] == number)
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            valid.eq(self.i.valid & self.checksum.valid),
            self.i.ready.eq(move & self.checksum.valid),
            passing.eq(valid & move),
            self.checksum.ready.eq(passing & self.i.payload.last),
            low.eq(Cat(hit & (told.place[:lanes] == lane) for lane in range(size))),
        ]
        with m.If(move):
            m.d.sync += [
                held.eq(valid),
                beat.eq(self.i.payload),
                value.eq(told.value),
                lower.eq(low & self.i.payload.keep),
                high.eq(Cat(spills, low) & self.i.payload.keep),
                self.o.valid.eq(held),
                self.o.payload.eq(beat),
            ]
            for lane in range(size):
                byte = slice(8 * lane, 8 * lane + 8)
                with m.If(lower[lane]):
                    m.d.sync += self.o.payload.data[byte].eq(value[:8])
                with m.Elif(high[lane]):
                    m.d.sync += self.o.payload.data[byte].eq(value[8:])
        with m.If(passing):
            last = self.i.payload.last
            m.d.sync += [
                number.eq(Mux(last, 0, number + 1)),
                spills.eq(low[-1] & ~last),
            ]
        return m
