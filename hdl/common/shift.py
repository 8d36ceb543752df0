"""Moving bytes between lanes: masks, counts, a shifter of two beats and a pipelined rotator."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Rotator", "byte_mask", "keep_count", "keep_mask", "lowest_lane", "shifted"]


def keep_mask(count, lanes: int) -> Value:
    """Return ``lanes`` bits of which the lowest ``count`` are set (``count`` 0 to ``lanes``)."""
    count = Value.cast(count)
    most = (1 << len(count)) - 1
    return Cat(count > lane if lane < most else Const(0, 1) for lane in range(lanes))


def keep_count(keep) -> Value:
    """Return how many bits of ``keep`` are set; they must be contiguous from bit 0."""
    keep = Value.cast(keep)
    # Bit n of the count toggles once for each 2**n bits that are passed.
    return Cat(keep[(1 << n) - 1 :: 1 << n].xor() for n in range(len(keep).bit_length()))


def lowest_lane(strb) -> Value:
    """Return the number of the lowest bit of ``strb`` that is set; those that are have no gaps."""
    lowest = strb & ~(strb << 1)
    return Cat(
        Cat(bit for lane, bit in enumerate(lowest[: len(strb)]) if lane >> n & 1).any()
        for n in range((len(strb) - 1).bit_length())
    )


def shifted(m: Module, window: Value, amount: Value, unit: int, name: str) -> Value:
    """Return ``window`` from bit ``amount * unit`` on, as many bits as exist for each amount.

    With two neighbouring beats as the window, this moves bytes and joins the parts of a beat that
    lie in both. Two bits of ``amount`` make a level of 6-input tables, so each cycle should take an
    even number of bits.
    """
    for low in reversed(range(0, len(amount), 2)):
        digit = amount[low : low + 2]
        reach = unit << low
        width = len(window) - reach * ((1 << len(digit)) - 1)
        whole = Signal(len(window), name=f"{name}_window{low}")
        rest = Signal(width, name=f"{name}_from{low}")
        # A sum of products, because Yosys makes more tables of nested multiplexers.
        parts = (
            whole[reach * n : reach * n + width] & (digit == n).replicate(width)
            for n in range(1 << len(digit))
        )
        m.d.comb += [whole.eq(window), rest.eq(reduce(or_, parts))]
        window = rest
    return window


def byte_mask(keep: Signal) -> Value:
    """Return eight bits for each bit of ``keep``: the mask of the data lanes it keeps."""
    return Cat(keep[lane].replicate(8) for lane in range(len(keep)))


class Rotator(wiring.Component):
    """Rotates each beat by ``amount`` bytes, towards higher lanes (``left``) or lower ones.

    Parameters: ``width`` in bits, a power of two of at least 16; ``side``: shape of the facts that
    travel beside the data; ``left``: direction.
    Members: ``i`` stream of {data, amount, side}, ``o`` stream of {data, side}.
    Latency: two of the log2(bytes) levels a cycle: 2 cycles at 64 bit, 3 at 512.
    Throughput: one beat per cycle. ``i.ready`` follows ``o.ready`` within the cycle (a chain of as
    many gates as stages); empty stages fill while the output waits.
    Errors: none. Reset: empty.
    """

    def __init__(self, *, width: int, side, left: bool = True):
        if width < 16 or width & (width - 1):
            raise ValueError(f"Width must be a power of two of at least 16 bits, not {width!r}")
        self._width, self._side, self._left = width, side, bool(left)
        self._levels = (width // 8).bit_length() - 1
        beat = {"data": width, "side": side}
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout({**beat, "amount": self._levels}))),
                "o": Out(stream.Signature(data.StructLayout(beat))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        levels = self._levels
        stages = -(-levels // 2)
        side_bits = Shape.cast(self._side).width

        moved, amount = self.i.p.data, self.i.p.amount
        side, valid = Value.cast(self.i.p.side), self.i.valid
        readies = [Signal(name=f"ready{n}") for n in range(stages)]
        m.d.comb += self.i.ready.eq(readies[0])
        for stage in range(stages):
            # One digit of the amount, in a sum of products as in ``shifted``.
            digit = amount[2 * stage : 2 * stage + 2]
            step = 8 << 2 * stage
            turns = [
                moved.rotate_left(step * n) if self._left else moved.rotate_right(step * n)
                for n in range(1 << len(digit))
            ]
            turned = Signal(self._width, name=f"turned{stage}")
            parts = (turn & (digit == n).replicate(self._width) for n, turn in enumerate(turns))
            m.d.comb += turned.eq(reduce(or_, parts))
            data_r = Signal(self._width, name=f"data{stage}", reset_less=True)
            amount_r = Signal(levels, name=f"amount{stage}", reset_less=True)
            side_r = Signal(side_bits, name=f"side{stage}", reset_less=True)
            valid_r = Signal(name=f"valid{stage}")
            after = self.o.ready if stage == stages - 1 else readies[stage + 1]
            m.d.comb += readies[stage].eq(~valid_r | after)
            with m.If(readies[stage]):
                m.d.sync += valid_r.eq(valid)
                m.d.sync += [data_r.eq(turned), amount_r.eq(amount), side_r.eq(side)]
            moved, amount, side, valid = data_r, amount_r, side_r, valid_r

        m.d.comb += [
            self.o.valid.eq(valid),
            self.o.p.data.eq(moved),
            Value.cast(self.o.p.side).eq(side),
        ]
        return m
