"""The header in front of a frame, put there or taken away: a shift by as many bytes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.packet import packet_stream

from .types import HEADER_BYTES

__all__ = ["Behead", "Prefix"]


class Prefix(wiring.Component):
    """Puts ``header`` in front of each packet.

    Members: ``i``, ``o`` packet streams; ``header``: the bytes, valid with each first beat.
    Latency: 1 cycle. Throughput: a beat a cycle; what a packet has more of beats takes as many.
    ``i.ready`` follows ``o.ready``. Errors: ``error`` is lost. Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "header": In(8 * HEADER_BYTES),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self._width // 8
        whole, over = divmod(HEADER_BYTES, size)  # beats of the header alone; bytes beside them
        held = Signal(8 * over, reset_less=True)  # bytes for the first lanes of the next beat
        rest, spilling = Signal(over, reset_less=True), Signal()
        begun = Signal(range(whole + 1))  # beats of the header that have been given
        given, beat, i = Signal.like(self.o.payload), self.o.payload, self.i.payload
        move, head, valid = Signal(), Signal(), Signal()
        front = Mux(i.first, self.header[8 * (HEADER_BYTES - over) :], held)
        spill = i.keep[size - over :]  # bytes that do not fit into this beat
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            head.eq(i.first & (begun != whole)),
            given.first.eq(i.first & (begun == 0) & ~spilling),
        ]
        with m.If(spilling):
            m.d.comb += [valid.eq(1), given.data.eq(held), given.keep.eq(rest), given.last.eq(1)]
        with m.Elif(head):
            word = self.header.word_select(begun, self._width) if whole else self.header
            m.d.comb += [valid.eq(self.i.valid), given.data.eq(word), given.keep.eq(-1)]
        with m.Else():
            m.d.comb += [
                valid.eq(self.i.valid),
                self.i.ready.eq(move),
                given.data.eq(Cat(front, i.data)),
                given.keep.eq((i.keep << over) | ((1 << over) - 1)),
                given.last.eq(i.last & ~spill.any()),
            ]
        with m.If(move):
            m.d.sync += [self.o.valid.eq(valid), beat.eq(given), spilling.eq(0)]
            with m.If(self.i.valid & ~spilling):
                m.d.sync += begun.eq(Mux(head, begun + 1, 0))
                with m.If(~head):
                    m.d.sync += [
                        held.eq(i.data[8 * (size - over) :]),
                        rest.eq(spill),
                        spilling.eq(i.last & spill.any()),
                    ]
        return m


class Behead(wiring.Component):
    """Takes the header away from each packet.

    Members: ``i``, ``o`` packet streams; ``header``: the bytes, valid from the packet's first beat
    at ``o`` on, until the next one comes.
    Latency: 1 cycle, and the next beat or the end. Throughput: a beat a cycle. ``i.ready`` follows
    ``o.ready``. Errors: ``error`` passes with the last beat; a packet that is no longer than a
    header becomes one of a byte, and must have an error. Reset: empty.
    """

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "header": Out(8 * HEADER_BYTES),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self._width // 8
        whole, over = divmod(HEADER_BYTES, size)
        kept = Signal(8 * (size - over), reset_less=True)  # of the beat before
        keeps = Signal(size - over, reset_less=True)
        number = Signal(range(whole + 2))  # beats of the packet that have come, as far as it counts
        draining, started, error = Signal(), Signal(), Signal(reset_less=True)
        move, i, given = Signal(), self.i.payload, Signal.like(self.o.payload)
        valid, place = Signal(), Signal.like(number)
        after = i.keep[over:]  # bytes of this beat that go into the next one
        taking = Signal()  # nothing is to be drained first
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            place.eq(Mux(i.first, 0, number)),
            taking.eq(move & ~draining),
            self.i.ready.eq(taking),
            given.first.eq(~started),
        ]
        with m.If(draining):
            m.d.comb += [
                valid.eq(1),
                given.data.eq(kept),
                given.keep.eq(keeps),
                given.last.eq(1),
                given.error.eq(error),
            ]
        with m.Else():
            m.d.comb += [
                valid.eq(self.i.valid & (place == whole + 1)),
                given.data.eq(Cat(kept, i.data)),
                given.keep.eq(Cat(keeps, i.keep)),
                given.last.eq(i.last & ~after.any()),
                given.error.eq(i.error & given.last),
            ]
        with m.If(move):
            m.d.sync += [self.o.valid.eq(valid), self.o.payload.eq(given), draining.eq(0)]
            with m.If(valid):
                m.d.sync += started.eq(~given.last)
            with m.If(self.i.valid & ~draining):
                m.d.sync += [
                    kept.eq(i.data[8 * over :]),
                    keeps.eq(after | 1),
                    error.eq(i.error),
                    draining.eq(i.last & (after.any() | (place != whole + 1))),
                    number.eq(Mux(place == whole + 1, place, place + 1)),
                ]
                for beat in range(whole + 1):
                    part = self.header[beat * self._width : (beat + 1) * self._width]
                    with m.If(place == beat):
                        m.d.sync += part.eq(i.data)
        return m
