"""Byte packing: chunks of any length become one packet without holes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .packet import packet_stream
from .shift import Rotator, byte_mask, keep_mask

__all__ = ["Packer", "chunk_beat"]


def chunk_beat(width: int) -> data.StructLayout:
    """Input of a Packer: ``count`` bytes from lane ``start`` on; ``end`` ends the packet."""
    bits = (width // 8).bit_length() - 1
    return data.StructLayout(
        {"data": width, "start": bits, "count": bits + 1, "end": 1, "error": 1}
    )


class Packer(wiring.Component):
    """Joins beats with any number of bytes into a packet of full beats.

    Parameters: ``width`` in bits, a power of two of at least 16.
    Members: ``i`` stream of ``chunk_beat``: 0 to width/8 bytes each, none beyond the last lane, the
    beat with ``end`` at least one; ``o`` packet stream, every beat full except the last. Lanes
    outside ``keep`` are undefined.
    Latency: 3 cycles at 64 bit, 4 at 512 (Rotator and one).
    Throughput: one input beat per cycle; when the end of a packet spills into one more output beat,
    that beat takes a cycle of its own.
    Errors: an ``error`` on any beat of a packet appears on its last beat; none are detected here.
    Reset: empty; a packet that has begun is forgotten.
    """

    def __init__(self, *, width: int):
        if width < 16 or width & (width - 1):
            raise ValueError(f"Width must be a power of two of at least 16 bits, not {width!r}")
        self._width = width
        super().__init__(
            {"i": In(stream.Signature(chunk_beat(width))), "o": Out(packet_stream(width))}
        )

    def elaborate(self, platform):
        m = Module()
        width, lanes = self._width, self._width // 8
        bits = lanes.bit_length() - 1
        side = data.StructLayout({"fill": bits, "total": bits + 1, "end": 1, "error": 1})
        m.submodules.rotator = rotator = Rotator(width=width, side=side)

        # Where the bytes of this beat begin in the output beat, and where they end.
        fill, total = Signal(bits), Signal(bits + 1)
        m.d.comb += [
            total.eq(fill + self.i.p.count),
            rotator.i.valid.eq(self.i.valid),
            self.i.ready.eq(rotator.i.ready),
            rotator.i.p.data.eq(self.i.p.data),
            rotator.i.p.amount.eq(fill - self.i.p.start),
            rotator.i.p.side.fill.eq(fill),
            rotator.i.p.side.total.eq(total),
            rotator.i.p.side.end.eq(self.i.p.end),
            rotator.i.p.side.error.eq(self.i.p.error),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += fill.eq(Mux(self.i.p.end, 0, total[:bits]))

        # Lanes below ``fill`` hold earlier bytes; bytes rotated past the end belong to the next
        # beat.
        turned, facts = rotator.o.p.data, rotator.o.p.side
        kept = Signal(width, reset_less=True)
        full, spill = Signal(), Signal()
        begun, error, flush = Signal(), Signal(), Signal()
        rest = Signal(bits, reset_less=True)
        older, wide = Signal(lanes), Signal(width)
        count = Signal(bits + 1)
        m.d.comb += [
            older.eq(keep_mask(facts.fill, lanes)),
            wide.eq(byte_mask((older | flush.replicate(lanes))[:lanes])),
            count.eq(Mux(flush, rest, facts.total)),
            full.eq(facts.total[bits]),
            spill.eq(facts.end & full & (facts.total[:bits] != 0)),
        ]
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.p.data.eq((kept & wide) | (turned & ~wide)),
                self.o.p.keep.eq(keep_mask(count, lanes)),
            ]
            with m.If(flush):
                m.d.sync += [
                    self.o.valid.eq(1),
                    self.o.p.first.eq(0),
                    self.o.p.last.eq(1),
                    self.o.p.error.eq(error),
                    error.eq(0),
                    begun.eq(0),
                    flush.eq(0),
                ]
            with m.Else():
                m.d.comb += rotator.o.ready.eq(1)
                m.d.sync += [
                    self.o.valid.eq(rotator.o.valid & (full | facts.end)),
                    self.o.p.first.eq(~begun),
                    self.o.p.last.eq(facts.end & ~spill),
                    self.o.p.error.eq((error | facts.error) & facts.end & ~spill),
                ]
                with m.If(rotator.o.valid):
                    for lane in range(lanes):
                        with m.If(full | ~older[lane]):
                            m.d.sync += kept.word_select(lane, 8).eq(turned.word_select(lane, 8))
                    m.d.sync += [
                        rest.eq(facts.total[:bits]),
                        flush.eq(spill),
                        error.eq((error | facts.error) & (spill | ~facts.end)),
                        begun.eq((begun | full) & (spill | ~facts.end)),
                    ]
        return m
