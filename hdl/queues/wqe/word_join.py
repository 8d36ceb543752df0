"""Joins units of one to four bytes to words of eight."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .types import Word

__all__ = ["UNIT_BYTES", "WORD_BYTES", "WordJoin"]

WORD_BYTES, UNIT_BYTES = 8, 4


class WordJoin(wiring.Component):
    """Puts units one behind the other, whatever their lengths, and gives full words and the rest.

    Members: ``unit`` of ``count`` bytes (0: none), which is ``taken`` (in a cycle with ``count``
    not 0); ``ends``: no unit comes any more, until ``done``; ``o``: words, the last one with
    ``last`` and the number of its bytes; ``done`` (a cycle): the last one is taken.
    Latency: 2 cycles. Throughput: a unit a cycle. Errors: none. Reset: nothing is kept.
    """

    def __init__(self):
        super().__init__(
            {
                "unit": In(8 * UNIT_BYTES),
                "count": In(range(UNIT_BYTES + 1)),
                "taken": Out(1),
                "ends": In(1),
                "o": Out(stream.Signature(Word)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # ``rest`` holds ``fill`` bytes, zero above them; ``part`` the units of a word: with
        # ``half`` one, with ``full`` two, in its upper end.
        rest, fill = Signal(8 * (UNIT_BYTES - 1)), Signal(range(UNIT_BYTES))
        part, half, full = Signal(8 * WORD_BYTES), Signal(), Signal()
        fresh, joined = Signal(8 * UNIT_BYTES), Signal(8 * (2 * UNIT_BYTES - 1))
        sum_, step = Signal(3), self.count
        with m.Switch(step):
            for i in range(1, UNIT_BYTES + 1):
                with m.Case(i):
                    m.d.comb += fresh.eq(self.unit[: 8 * i])
        # The last word takes one unit or two: what is left, and zeros.
        flush, flushed, last = Signal(), Signal(), Signal()
        count = Signal(range(WORD_BYTES), reset_less=True)
        m.d.comb += [
            joined.eq(rest | (fresh << (8 * fill))),
            sum_.eq(fill + step),
            self.taken.eq((step != 0) & (~full | self.o.ready)),
            flush.eq(self.ends & (step == 0) & ~full & ~last),
            self.o.valid.eq(full | last),
            self.o.payload.data.eq(part),
            self.o.payload.count.eq(Mux(last, count, WORD_BYTES)),
            self.o.payload.last.eq(last),
            self.done.eq(last & self.o.ready),
        ]
        with m.If(self.o.ready):
            m.d.sync += full.eq(0)
        with m.If(self.taken):
            m.d.sync += [fill.eq(sum_), rest.eq(joined)]
            with m.If(sum_[2]):
                m.d.sync += rest.eq(joined[8 * UNIT_BYTES :])
        with m.If((self.taken & sum_[2]) | flush):
            m.d.sync += [
                part.eq(Cat(part[8 * UNIT_BYTES :], joined[: 8 * UNIT_BYTES])),
                half.eq(~half),
                full.eq(half & ~flush),
            ]
        with m.If(flush):
            m.d.sync += [rest.eq(0), flushed.eq(1), last.eq(half)]
            with m.If(~flushed):
                m.d.sync += count.eq(Cat(fill, half))
        with m.If(self.done):
            m.d.sync += [fill.eq(0), flushed.eq(0), last.eq(0)]
        return m
