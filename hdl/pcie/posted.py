"""Writes inside the block: those that a completion of this card could still pass."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import increment

__all__ = ["BITS", "IN_FLIGHT", "PostedWrites", "sequence"]

#: Bits of a write's number, and the most writes that are in flight.
BITS = 5
IN_FLIGHT = (1 << BITS) - 1


def sequence() -> data.StructLayout:
    """What the card sends as ``seq_num`` with a request: the number of a write; 0 with a read."""
    return data.StructLayout({"number": BITS, "write": 1})


class PostedWrites(wiring.Component):
    """Counts the requests that write from when they are taken until the block has them in order.

    The block returns the sequence number of a request when no completion of the card can pass it
    any more (PG213, "Requester Interface", "Maintaining Transaction Order"). Posted requests stay
    in order, so the number of a write says that all writes before it are done as well.

    Parameters: ``patience``: cycles without a number after which all writes in flight are taken for
    done: the block has dropped them, for example because bus mastering is off.
    Members: ``taken`` In: a request is taken in this cycle; ``may_take`` Out: there is room for one
    more; ``seq_num0``, ``seq_num_vld0``, ``seq_num1``, ``seq_num_vld1``: the block's pins;
    ``in_flight``, ``done``: for ``Barrier``; ``lost`` Out: how often ``patience`` has ended, which
    wraps. Numbers are those of ``sequence``, from 0 after reset.
    Latency: 2 cycles from a pin to ``done``. Reset: none in flight, with the block.
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
        next_taken, next_done = Signal(BITS), Signal(BITS)  # numbers, modulo 2**BITS
        inside, reached, named = Signal(BITS), Signal(BITS), Signal()
        m.d.comb += inside.eq(next_taken - next_done)
        m.d.sync += [
            next_taken.eq(next_taken + self.taken),
            # One more may be taken before this is seen.
            self.may_take.eq(inside < IN_FLIGHT - 1),
        ]
        self._newest(m, reached, named)

        left = Signal(range(self._patience), init=self._patience - 1)
        given_up, advance = Signal(), Signal(BITS)
        m.d.comb += [
            given_up.eq(left == 0),
            advance.eq(Mux(given_up, inside, reached - next_done)),
        ]
        m.d.sync += [
            left.eq(left - 1),
            self.done.eq(0),
            self.in_flight.eq(self.in_flight + self.taken - self.done),
        ]
        # A number beyond those inside is one of a write that was given up.
        with m.If(given_up | (named & (advance <= inside))):
            m.d.sync += [self.done.eq(advance), next_done.eq(next_done + advance)]
        with m.If(given_up | named | (inside == 0)):
            m.d.sync += left.eq(self._patience - 1)
        with m.If(given_up):
            increment(m, self.lost)
        return m

    def _newest(self, m: Module, reached, named) -> None:
        """The number behind the newest write that the block has named, a cycle later."""
        pins = ((self.seq_num0, self.seq_num_vld0), (self.seq_num1, self.seq_num_vld1))
        first, second = (data.View(sequence(), number) for number, _ in pins)
        valid = Cat(vld & view.write for (_, vld), view in zip(pins, (first, second), strict=True))
        ahead = Signal(BITS)  # of the second, before the first if its highest bit is set
        m.d.comb += ahead.eq(second.number - first.number)
        later = valid[1] & ~(valid[0] & ahead[-1])
        m.d.sync += [
            named.eq(valid.any()),
            reached.eq(Mux(later, second.number, first.number) + 1),
        ]
