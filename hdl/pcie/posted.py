"""Writes inside the block: those that a completion of this card could still pass."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import increment

__all__ = ["BITS", "IN_FLIGHT", "NUMBERS", "READ", "PostedWrites", "following", "sequence"]

#: Bits of a request's number. Writes are numbered in turn from 0, modulo ``NUMBERS``; what is left
#: is the number of each read.
BITS = 6
NUMBERS = READ = (1 << BITS) - 1
#: The most writes that are in flight.
IN_FLIGHT = NUMBERS // 2


def sequence() -> data.StructLayout:
    """What the card sends as ``seq_num`` with a request, and whether that is a ``write``."""
    return data.StructLayout({"number": BITS, "write": 1})


def following(number):
    """The number of the write behind that of ``number``."""
    return Mux(number == NUMBERS - 1, 0, number + 1)[:BITS]


class PostedWrites(wiring.Component):
    """Counts the requests that write from when they are taken until the block has them in order.

    The block returns the sequence number of a request when no completion of the card can pass it
    any more (PG213, "Requester Interface", "Maintaining Transaction Order"). Posted requests stay
    in order, so the number of a write says that all writes before it are done as well.

    A write that was given up may be named after all, when the block was only slow. There are twice
    as many numbers as writes in flight, so such a number is none of those in flight then: it is
    passed over. It comes before that of any later write, so when one of these has been named, or
    when they have been given up as well, what was given up before counts as dropped for good.

    Parameters: ``patience``: cycles without a number after which all writes in flight are taken for
    done: the block has dropped them, for example because bus mastering is off.
    Members: ``taken`` In: a request is taken in this cycle; ``may_take`` Out: there is room for one
    more; ``seq_num0``, ``seq_num_vld0``, ``seq_num1``, ``seq_num_vld1``: the block's pins;
    ``in_flight``, ``done``: for ``Barrier``; ``lost`` Out: how often ``patience`` has ended, which
    wraps.
    Latency: 3 cycles from a pin to ``done``. Reset: none in flight, with the block.
    """

    def __init__(self, *, patience: int):
        if patience < 64:
            raise ValueError(f"Patience must be at least 64 cycles, not {patience!r}")
        self._patience = patience
        super().__init__(
            {
                "taken": In(1),
                "may_take": Out(1, init=1),
                "seq_num0": In(6),
                "seq_num_vld0": In(1),
                "seq_num1": In(6),
                "seq_num_vld1": In(1),
                "in_flight": Out(range(IN_FLIGHT + 1)),
                "done": Out(range(IN_FLIGHT + 1)),
                "lost": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        next_taken, further = Signal(BITS), Signal(BITS, init=1)  # numbers, one behind the other
        inside = Signal(range(IN_FLIGHT + 1))
        with m.If(self.taken):
            m.d.sync += [next_taken.eq(further), further.eq(following(further))]
        # One more may be taken before this is seen.
        m.d.sync += self.may_take.eq(inside < IN_FLIGHT - 1)
        reached, named = self._newest(m)

        # How many are behind the write that was named: without and with the one that is taken now.
        # A number of a write that was given up has more behind it than are in flight.
        rest, more = (self._distance(m, to, reached) for to in (next_taken, further))
        behind, said = Signal(BITS), Signal()
        m.d.sync += [behind.eq(Mux(self.taken, more, rest)), said.eq(named)]

        left = Signal(range(self._patience), init=self._patience - 1)
        given_up, hit = Signal(), Signal()
        m.d.comb += [given_up.eq(left == 0), hit.eq(said & (behind <= inside))]
        m.d.sync += [
            left.eq(left - 1),
            self.done.eq(Mux(given_up, inside, Mux(hit, inside - behind, 0))),
            inside.eq(Mux(given_up, 0, Mux(hit, behind, inside)) + self.taken),
            self.in_flight.eq(self.in_flight + self.taken - self.done),
        ]
        with m.If(given_up | hit | (inside == 0)):
            m.d.sync += left.eq(self._patience - 1)
        with m.If(given_up):
            increment(m, self.lost)
        return m

    @staticmethod
    def _distance(m: Module, to, origin) -> Signal:
        """How many numbers ``to`` is behind ``origin``."""
        straight, wrapped = Signal(BITS + 1), Signal(BITS)
        distance = Signal(BITS)
        m.d.comb += [
            straight.eq(to - origin),
            wrapped.eq(to - origin - 1),  # the number that there is not
            distance.eq(Mux(straight[-1], wrapped, straight[:BITS])),
        ]
        return distance

    def _newest(self, m: Module) -> tuple[Signal, Signal]:
        """The number behind the newest write that the block has named, and whether it has named
        one, a cycle later."""
        first, second = self.seq_num0, self.seq_num1
        reached, named = Signal(BITS), Signal()
        valid = Cat(self.seq_num_vld0 & (first != READ), self.seq_num_vld1 & (second != READ))
        ahead = Signal(BITS)  # of the second, before the first if its highest bit is set
        m.d.comb += ahead.eq(second - first)
        later = valid[1] & ~(valid[0] & ahead[-1])
        m.d.sync += [named.eq(valid.any()), reached.eq(following(Mux(later, second, first)))]
        return reached, named
