"""One machine's look into the cache: the QP it asks for, and the places that stay for it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Look"]


class Look(wiring.Component):
    """Compares the QP that a machine asks for with the tags of all places, until one has it.

    Parameters: ``bits`` of a QP's number; ``places`` of the cache; ``behind``: the machine may
    still write rows of the other QP that it was answered for before the last one.
    Members: ``number``, ``enable`` In: a request, which replaces one that is not answered;
    ``drop`` In: nothing is asked for any more. ``tags``, ``here``, ``open`` In: the QP of each
    place, which places have their rows, and which of them answer. ``asks`` Out: the QP asked for,
    from the cycle behind the request on; ``looks`` Out: it is not answered yet; ``hits`` Out: the
    place that has it, one bit, for as long as it is asked for; ``misses`` Out: none answers.
    ``valid`` Out: the rows of the place that ``hits`` in the cycle before are the answer; it stays
    until the next request.
    ``pins`` Out: places that must keep their QP.
    Latency: 2 cycles from a request to ``valid`` when its rows are here, else 2 from the cycle
    before they are. Throughput: a request in 2 cycles is answered. Errors: none. Reset: nothing is
    asked for.
    """

    def __init__(self, *, bits: int, places: int, behind: bool = False):
        self._behind = behind
        super().__init__(
            {
                "number": In(bits),
                "enable": In(1),
                "drop": In(1),
                "tags": In(data.ArrayLayout(bits, places)),
                "here": In(places),
                "open": In(places),
                "asks": Out(bits),
                "hits": Out(places),
                "looks": Out(1),
                "misses": Out(1),
                "valid": Out(1),
                "pins": Out(places),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asked, found = Signal(), Signal()
        places = len(self.here)
        pins = Signal(places, name="pins_hit")
        same = Cat(self.tags[n] == self.asks for n in range(places))
        m.d.comb += [
            self.hits.eq(same & self.here & asked.replicate(places)),
            found.eq((self.hits & self.open).any()),
            self.misses.eq(self.looks & ~found),
            pins.eq(self.hits & (self.open | ~self.looks.replicate(places))),
            self.pins.eq(pins),
        ]
        with m.If(self.looks & found):
            m.d.sync += [self.looks.eq(0), self.valid.eq(1)]
        with m.If(self.enable):
            m.d.sync += [self.asks.eq(self.number), asked.eq(1), self.looks.eq(1), self.valid.eq(0)]
        with m.Elif(self.drop):
            m.d.sync += [asked.eq(0), self.looks.eq(0), self.valid.eq(0)]
        if self._behind:
            # Where the last QP was that was answered for, and the last other one before it. A
            # request that is replaced before its answer leaves no trace.
            last, other, fresh = Signal(places), Signal(places), Signal()
            m.d.sync += fresh.eq(self.looks & found & ~self.enable)
            with m.If(self.enable & ~self.looks):
                m.d.sync += last.eq(self.hits)
            with m.If(fresh & last.any() & (last != self.hits)):
                m.d.sync += other.eq(last)
            m.d.comb += self.pins.eq(pins | last | other)
        return m
