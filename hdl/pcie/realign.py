"""Moving a packet's words to other lanes: between a TLP behind its header and aligned memory."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.shift import Rotator

__all__ = ["Realign", "realign_beat", "realigned_beat"]


def realign_beat(width: int, side) -> data.StructLayout:
    """A beat that goes in.

    Word n of 32 bits goes to lane n + ``up``, modulo the beat's words. ``late``: the words of the
    packet's first beat that are valid all pass the top of the beat, so its output begins with them
    and not below. ``spill``: words of the last beat pass the top, and make a beat of their own.
    ``joined``, in a packet's first beat: what the packet before spills ends in the lower half, and
    the valid words of this beat go into the upper half, so both leave as one beat. This beat
    directly follows the one that spills, without an empty stage between them, and is not ``late``.
    """
    words = width // 32
    return data.StructLayout(
        {
            "data": width,
            "up": range(words),
            "late": 1,
            "first": 1,
            "last": 1,
            "spill": 1,
            "joined": 1,
            "side": side,
        }
    )


def realigned_beat(width: int, side) -> data.StructLayout:
    """A beat that comes out, with the ``side`` of the input beat with which it leaves.

    ``tail``: the packet begins in the upper half, and in the lower one the packet before ends, to
    which ``before`` belongs. Otherwise ``before`` means nothing.
    """
    return data.StructLayout(
        {"data": width, "side": side, "first": 1, "last": 1, "tail": 1, "before": side}
    )


class Realign(wiring.Component):
    """Moves the words of each packet up by ``up`` lanes, over the borders of its beats.

    Members: ``i`` of ``realign_beat``; ``o`` of ``realigned_beat``. ``up`` and ``late`` are the
    same for a whole packet.
    Latency: 3 cycles at 512 bits, one more for a packet that is late and has several beats.
    Throughput: one beat per cycle; ``spill`` costs a cycle unless the next packet is ``joined``.
    ``i.ready`` follows ``o.ready`` within the cycle. Errors: none. Reset: empty.
    """

    def __init__(self, *, width: int, side):
        self._width, self._side = width, side
        super().__init__(
            {
                "i": In(stream.Signature(realign_beat(width, side))),
                "o": Out(stream.Signature(realigned_beat(width, side))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        facts = data.StructLayout(
            {
                "up": self.i.p.up.shape(),
                "late": 1,
                "first": 1,
                "last": 1,
                "spill": 1,
                "joined": 1,
                "side": self._side,
            }
        )
        m.submodules.rotate = rotate = Rotator(width=self._width, side=facts)
        m.d.comb += [
            rotate.i.valid.eq(self.i.valid),
            self.i.ready.eq(rotate.i.ready),
            rotate.i.p.data.eq(self.i.p.data),
            rotate.i.p.amount.eq(self.i.p.up << 2),
        ]
        for name in facts.members:
            m.d.comb += Value.cast(rotate.i.p.side[name]).eq(Value.cast(self.i.p[name]))

        beat = rotate.o.p.side
        held = Signal(self._width, reset_less=True)  # the rotated beat before
        side = Signal(Shape.cast(self._side), reset_less=True)
        spilling = Signal()  # the held words are the packet's last beat
        begun = Signal()  # a beat of the packet has left
        waits = Signal()  # the words of this beat leave with those of the next
        tail = Signal()  # the held words leave with the first beat of the next packet
        words = self._width // 32
        joined = Cat(
            Mux(
                Mux(tail, n < words // 2, beat.up > n),
                held.word_select(n, 32),
                rotate.o.p.data.word_select(n, 32),
            )
            for n in range(words)
        )
        m.d.comb += [
            waits.eq(beat.late & beat.first & ~beat.last),
            tail.eq(spilling & rotate.o.valid & beat.joined),
            self.o.valid.eq(spilling | (rotate.o.valid & ~waits)),
            self.o.p.first.eq(tail | ~begun),
            self.o.p.last.eq((spilling & ~tail) | (beat.last & ~beat.spill)),
            self.o.p.tail.eq(tail),
            Value.cast(self.o.p.before).eq(side),
            rotate.o.ready.eq((tail & self.o.ready) | (~spilling & (self.o.ready | waits))),
        ]
        with m.If(spilling & ~tail):
            m.d.comb += [self.o.p.data.eq(held), Value.cast(self.o.p.side).eq(side)]
        with m.Else():
            # A packet of one late beat has nothing before it: its words are all in this one.
            alone = beat.late & beat.first
            m.d.comb += [
                self.o.p.data.eq(Mux(alone, rotate.o.p.data, joined)),
                Value.cast(self.o.p.side).eq(Value.cast(beat.side)),
            ]
        with m.If(rotate.o.valid & rotate.o.ready):
            m.d.sync += [held.eq(rotate.o.p.data), side.eq(Value.cast(beat.side))]
            m.d.sync += spilling.eq(beat.last & beat.spill)
        with m.Elif(self.o.ready):
            m.d.sync += spilling.eq(0)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += begun.eq(~self.o.p.last)
        return m
