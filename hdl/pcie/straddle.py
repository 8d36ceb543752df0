"""RC with straddle: beats that several packets share become beats of one packet's data."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.skid import Skid

from .bus import packet_beat
from .descriptors import WIDTH, completion_beat, rc_descriptor, rc_user

__all__ = ["Unstraddle"]

#: A packet begins with any of these parts of a beat (PG213, "512-bit Requester Interface").
QUARTERS = 4
QUARTER = WIDTH // QUARTERS
WORDS = QUARTER // 32
#: Words of the descriptor, which leave one word of the first quarter to the data.
HEAD = rc_descriptor().size // 32


def _quarters() -> data.StructLayout:
    """A beat of the block; for each quarter, whether a packet begins or ends in it, and whether
    such an end is in its last word."""
    return data.StructLayout(
        {"data": WIDTH, "sop": QUARTERS, "eop": QUARTERS, "full": QUARTERS, "discontinue": 1}
    )


def _first(bits) -> Value:
    """The lowest bit of ``bits`` that is set, alone."""
    return Cat(bit & ~bits[:n].any() for n, bit in enumerate(bits))


def _chosen(bits, values: Iterable[int]) -> Value:
    """The one of ``values`` whose bit is set."""
    return reduce(or_, (Mux(bit, value, 0) for bit, value in zip(bits, values, strict=True)))


class Unstraddle(wiring.Component):
    """Gives each beat to one packet, and takes the descriptor out of the data.

    Members: ``i``: the block's stream, up to four packets in a beat; ``o``: ``completion_beat``.
    Words 3 to 18 behind the beginning of a packet become its first beat, the next 16 its second
    one. They are in two beats of the block, of which one is held.
    Latency: 2 cycles from the first beat that has the words, 1 from the second one. Throughput: a
    cycle for each beat of the block, and for each packet that ends before another one begins in it.
    Errors: a beat of the block with ``discontinue`` spoils all packets that it is a part of. What
    stands between packets is dropped. Reset: empty.
    Source: PG213, "512-bit Requester Interface", for ``tuser``.
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(packet_beat(rc_user()))),
                "o": Out(stream.Signature(completion_beat())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = Skid(shape=_quarters())
        self._mark(m, skid.i)
        held, held_valid = Signal(_quarters()), Signal()
        further, further_valid = skid.o.p, skid.o.valid
        shift = Signal()
        m.d.comb += skid.o.ready.eq(shift)
        with m.If(shift):
            m.d.sync += [held.eq(further), held_valid.eq(further_valid)]

        inside = Signal()  # the packet whose next words stand in quarter ``at`` has begun
        at = Signal(range(QUARTERS + 1))  # what is before it in the held beat is done
        left = Signal(QUARTERS)
        start = Signal(QUARTERS)  # one bit: where the words of this cycle's beat begin
        m.d.comb += [
            left.eq((1 << QUARTERS) - 1 << at),
            start.eq(Mux(inside, _first(left), _first(held.sop & left))),
        ]
        here, last, end = self._end(m, held, further, further_valid, start)
        m.d.comb += self.o.valid.eq(held_valid & start.any() & (here | further_valid))
        self._select(m, held, further, start)

        bad, cut_off = Signal(), Signal()
        more = Signal()  # another packet begins in the held beat, behind the one that ends in it
        m.d.comb += [
            more.eq(Cat(held.sop[n] & end[:n].any() for n in range(1, QUARTERS)).any()),
            cut_off.eq(bad | held.discontinue | (further.discontinue & ~here)),
            self.o.p.abort.eq(cut_off),
            self.o.p.last.eq(last),
        ]
        with m.If(~held_valid | ~start.any()):  # nothing is left of the held beat
            m.d.comb += shift.eq(1)
            m.d.sync += at.eq(0)
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += [inside.eq(~last), bad.eq(cut_off & ~last)]
            # A packet that goes on does so in the same quarter of the next beat.
            behind = Mux(here & ~more, 0, _chosen(end, [*range(1, QUARTERS + 1)] * 2))
            m.d.sync += at.eq(Mux(last, behind, _chosen(start, range(QUARTERS))))
            m.d.comb += shift.eq(~(last & here & more))
        return m

    def _mark(self, m: Module, beats) -> None:
        """Say of each quarter what the block says of the first to the fourth packet of a beat."""
        user, marks = self.i.p.user, beats.p
        sops, eops = user.sop_ptr, user.eop_ptr
        m.d.comb += [
            beats.valid.eq(self.i.valid),
            self.i.ready.eq(beats.ready),
            marks.data.eq(self.i.p.data),
            marks.discontinue.eq(user.discontinue),
        ]
        for quarter in range(QUARTERS):
            begins = [bit & (sops.word_select(n, 2) == quarter) for n, bit in enumerate(user.sop)]
            places = [(bit, eops.word_select(n, 4)) for n, bit in enumerate(user.eop)]
            ends = [bit & (place[2:] == quarter) for bit, place in places]
            m.d.comb += [
                marks.sop[quarter].eq(Cat(begins).any()),
                marks.eop[quarter].eq(Cat(ends).any()),
                marks.full[quarter].eq(
                    Cat(one & place[:2].all() for one, (_, place) in zip(ends, places)).any()
                ),
            ]

    def _end(self, m: Module, held, further, further_valid, start):
        """Where the packet of ``start`` ends: whether it does in the held beat, whether it does
        with the 16 words of this cycle, and the quarter of both beats, as one bit."""
        eop = Cat(held.eop, further.eop & further_valid.replicate(QUARTERS))
        full = Cat(held.full, further.full)
        here, last, end = Signal(), Signal(), Signal(2 * QUARTERS)
        for n in range(QUARTERS):
            with m.If(start[n]):
                within = Cat(eop[n : n + QUARTERS], eop[n + QUARTERS] & ~full[n + QUARTERS])
                m.d.comb += [
                    here.eq(held.eop[n:].any()),
                    last.eq(within.any()),
                    end.eq(Cat((0 for _ in range(n)), _first(eop[n:]))),
                ]
        return here, last, end

    def _select(self, m: Module, held, further, start) -> None:
        """The words of this cycle, and the descriptor before them."""
        words = Cat(held.data, further.data)
        for n in range(QUARTERS):
            with m.If(start[n]):
                m.d.comb += [
                    self.o.p.head.as_value().eq(words[n * QUARTER :]),
                    self.o.p.data.eq(words[n * QUARTER + HEAD * 32 :]),
                ]
