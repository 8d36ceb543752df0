"""Arithmetic without state: sums in blocks, comparisons, PSNs, shifters and masks.

Each circuit is compared with Amaranth's own operator, or with the definition, for all inputs.
"""

from __future__ import annotations

from amaranth.hdl import Assert, Assume, Elaboratable, Module, Mux, Signal, Value

from hdl.common.address import OFFSET_BITS, add_high, add_low, mask
from hdl.common.count import raised
from hdl.common.shift import Rotator, keep_count, keep_mask, shifted
from hdl.common.sums import at_most, is_sum, reaches, wide_difference, wide_sum
from hdl.host.round_robin import round_robin
from tests.force import Force, inverted, stuck

from .harness import Proof, any_signal, offer, sequence, take

__all__ = ["PROOFS", "Function"]


class Function(Elaboratable):
    """A function of the gateware as a component, whose ``result`` a fault can change."""

    def __init__(self, function, width: int) -> None:
        self._function, self.result = function, Signal(width, name="result")

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.result.eq(self._function(m))
        return m


#: A fault in a function: its lowest bit is wrong.
WRONG = Force("tests.proofs.arithmetic:Function", "result", inverted(1))


def _is(m: Module, width: int, function, expected: Value) -> None:
    """Assert that ``function(m)``, in a module of its own, is ``expected``."""
    m.submodules.function = part = Function(function, width)
    m.d.comb += Assert(part.result == expected)


def _sum(m: Module) -> None:
    a, b = any_signal(m, 64, "a"), any_signal(m, 48, "b")
    _is(m, 65, lambda inside: wide_sum(inside, a, b), a + b)


def _difference(m: Module) -> None:
    a, b = any_signal(m, 48, "a"), any_signal(m, 48, "b")
    _is(m, 49, lambda inside: wide_difference(inside, a, b), ((a - b)[:48]) | ((a >= b) << 48))


def _at_most(m: Module) -> None:
    a, b = any_signal(m, 64, "a"), any_signal(m, 64, "b")
    _is(m, 1, lambda inside: at_most(a, b), a <= b)


def _is_sum(m: Module) -> None:
    a, b, total = (any_signal(m, 32, name) for name in ("a", "b", "total"))
    _is(m, 1, lambda inside: is_sum(a, b, total), a + b == total)


def _is_sum_that_wraps(m: Module) -> None:
    a, b, total = (any_signal(m, 32, name) for name in ("a", "b", "total"))
    _is(m, 1, lambda inside: is_sum(a, b, total, wraps=True), (a + b)[:32] == total)


def _reaches(m: Module) -> None:
    a, b, limit = (any_signal(m, 33, name) for name in ("a", "b", "limit"))
    _is(m, 1, lambda inside: reaches(inside, a, b, limit), a + b >= limit)


def _raised(m: Module) -> None:
    value, carry = any_signal(m, 32, "value"), any_signal(m, 1, "carry")
    _is(m, 32, lambda inside: raised(value, carry), (value + carry)[:32])


def _psn(m: Module) -> None:
    """The distance of two PSNs orders all PSNs within half of the circle (IBTA 9.7.1)."""
    start = any_signal(m, 24, "start")
    ahead = any_signal(m, 23, "ahead")
    later = Signal(24)
    m.d.comb += later.eq(start + ahead)
    distance = wide_difference(m, later, start, block=12)[:24]
    back = wide_difference(m, start, later, block=12)[:24]
    _is(m, 1, lambda inside: ~distance[23] & (distance != 0), ahead != 0)
    m.d.comb += [
        Assert(distance == ahead),
        Assert(back[23] == (ahead != 0)),
        # What lies in a window of ``ahead`` packets behind ``start`` is not before it.
        Assert((distance[23] | back[23]) == (ahead != 0)),
    ]


def _keep(m: Module) -> None:
    lanes = 64
    count = any_signal(m, 7, "count")
    m.d.comb += Assume(count <= lanes)
    _is(m, 7, lambda inside: keep_count(keep_mask(count, lanes)), count)
    m.d.comb += Assert(keep_mask(count, lanes) == ((1 << count) - 1)[:lanes])


def _shifted(m: Module) -> None:
    window, amount = any_signal(m, 128, "window"), any_signal(m, 3, "amount")
    part = shifted(Module(), window, amount, 8, "width")
    _is(
        m,
        len(part),
        lambda inside: shifted(inside, window, amount, 8, "move"),
        (window >> (amount << 3))[: len(part)],
    )


def _rotator(m: Module) -> None:
    """What comes out is the beat that went in so many beats ago, turned by its amount."""
    number = 3
    m.submodules.dut = dut = Rotator(width=64, side=number)
    entered = sequence(m, offer(m, dut.i), number, "entered")
    left = sequence(m, take(m, dut.o), number, "left")
    m.d.comb += Assume(dut.i.p.side == entered)
    # Any one beat is watched: its data and amount are kept beside the component.
    beat, chosen = Signal(64), any_signal(m, 1, "chosen")
    amount, which, watching = Signal(3), Signal(number), Signal()
    with m.If(dut.i.valid & dut.i.ready & chosen & ~watching):
        m.d.sync += [beat.eq(dut.i.p.data), amount.eq(dut.i.p.amount)]
        m.d.sync += [which.eq(entered), watching.eq(1)]
    with m.If(dut.o.valid):
        m.d.comb += Assert(dut.o.p.side == left)
        with m.If(watching & (left == which)):
            twice = (Value.cast(beat).replicate(2) << (amount << 3))[64:128]
            m.d.comb += Assert(dut.o.p.data == twice)
            with m.If(dut.o.ready):
                m.d.sync += watching.eq(0)


def _mask(m: Module) -> None:
    size = any_signal(m, 5, "size")
    m.d.comb += Assume(size <= 16)
    _is(m, 16, lambda inside: mask(size), ((1 << size) - 1)[:16])


def _ring(m: Module) -> None:
    """The address of an entry in a ring, made in two cycles, is base + offset."""
    base, offset = any_signal(m, 64, "base"), any_signal(m, OFFSET_BITS, "offset")
    addr, carry, wanted, step = Signal(64), Signal(), Signal(64), Signal(2)
    with m.Switch(step):
        with m.Case(0):
            add_low(m, addr, carry, base, offset)
            m.d.sync += [wanted.eq(base + offset), step.eq(1)]
        with m.Case(1):
            add_high(m, addr, carry)
            m.d.sync += step.eq(2)
    part = Function(lambda inside: addr, 64)
    m.submodules.function = part
    with m.If(step == 2):
        m.d.comb += Assert(part.result == wanted)


def _position(m: Module) -> None:
    """Entries in use are told from their 16-bit indices, also when these wrap."""
    head, used = any_signal(m, 16, "head"), any_signal(m, 16, "used")
    size = any_signal(m, 5, "size")
    m.d.comb += [Assume(size <= 15), Assume(used <= (1 << size))]
    tail = Signal(16)
    m.d.comb += tail.eq(head + used)
    _is(m, 16, lambda inside: (tail - head)[:16], used)
    # Two different entries of the ring never share a place.
    one, other = any_signal(m, 16, "one"), any_signal(m, 16, "other")
    m.d.comb += [Assume(one < used), Assume(other < used)]
    places = [(head + n)[:16] & mask(size) for n in (one, other)]
    m.d.comb += Assert((places[0] == places[1]) == (one == other))


def _round_robin(m: Module) -> None:
    """Who asks and goes on asking is chosen before any other is chosen twice."""
    count = 5
    requests, watched = any_signal(m, count, "requests"), any_signal(m, 3, "watched")
    last, chosen, same = Signal(3), Signal(3), Signal(3)
    m.submodules.function = part = Function(
        lambda inside: (round_robin(inside, requests, last, chosen), chosen)[1], 3
    )
    waited, started = Signal(4), Signal()
    m.d.sync += [last.eq(part.result), same.eq(watched), started.eq(1)]
    m.d.comb += [Assume(watched < count), Assume(~started | (watched == same))]
    with m.If(requests.bit_select(watched, 1) & (part.result != watched)):
        m.d.sync += waited.eq(waited + 1)
    with m.Else():
        m.d.sync += waited.eq(0)
    m.d.comb += Assert(waited < count)
    m.d.comb += Assert(Mux(requests != 0, requests.bit_select(part.result, 1), part.result == last))


PROOFS = (
    Proof("sum", "A sum in blocks is the sum (64 and 48 bits).", _sum, WRONG),
    Proof(
        "difference", "A difference in blocks is the difference and its sign.", _difference, WRONG
    ),
    Proof("at-most", "A comparison in a tree is the comparison (64 bits).", _at_most, WRONG),
    Proof("is-sum", "A sum is checked without a carry chain (32 bits).", _is_sum, WRONG),
    Proof(
        "is-sum-that-wraps",
        "Nor is one modulo its bits (32 bits).",
        _is_sum_that_wraps,
        WRONG,
    ),
    Proof(
        "reaches",
        "Whether two numbers reach a limit takes one sum (33 bits).",
        _reaches,
        WRONG,
    ),
    Proof("raised", "A counter in pieces counts and wraps (32 bits).", _raised, WRONG),
    Proof("psn", "PSNs within half of the circle are in order, wherever they begin.", _psn, WRONG),
    Proof("keep", "A beat's mask and its count of bytes say the same (64 lanes).", _keep, WRONG),
    Proof("shifted", "A window of two beats is shifted by whole bytes.", _shifted, WRONG),
    Proof(
        "rotator",
        "A rotator loses no beat, keeps their order and turns each by its own amount (64 bits).",
        _rotator,
        Force("hdl.common.shift:Rotator", "turned", inverted(1)),
        depth=8,
    ),
    Proof("ring-mask", "A position's place in a ring is made with the right mask.", _mask, WRONG),
    Proof("ring-address", "An entry's address in two cycles is base and offset.", _ring, WRONG),
    Proof(
        "ring-position",
        "Entries in use have different places in the ring, also when indices wrap.",
        _position,
        WRONG,
    ),
    Proof(
        "round-robin",
        "A client that goes on asking is served before another is served twice (5 clients).",
        _round_robin,
        Force("tests.proofs.arithmetic:Function", "result", stuck(0)),
    ),
)
