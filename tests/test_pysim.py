"""Amaranth's simulator does the same with less work (tests/pysim.py)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.hdl._ast import Slice
from amaranth.sim import _pyrtl

from tests import pysim
from tests.simulate import simulate

#: What expressions are made of: widths with and without sign.
SHAPES = (1, 1, 2, 3, 8, 21, signed(1), signed(4), signed(9))
UNARY = ("__neg__", "__invert__", "bool", "any", "all", "xor", "as_signed", "as_unsigned")
BINARY = ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "eq", "ne", "lt", "ge")


def test_is_in_use():
    """Otherwise what follows compares Amaranth with itself."""
    assert _pyrtl._RHSValueCompiler is pysim._Rhs and _pyrtl._PythonEmitter is pysim._Emitter


def expression(rng: random.Random, signals: list[Signal], depth: int) -> Value:
    """Any expression of these signals, as deep at most."""

    def some() -> Value:
        return expression(rng, signals, depth - 1)

    if not depth:
        if rng.random() < 0.2:
            return Const(rng.choice((0, 1, 0, 1, -1, 5, 255)), rng.choice(SHAPES))
        return rng.choice(signals)
    kind = rng.randrange(9)
    if kind == 0:
        value = some()
        return getattr(value, rng.choice(UNARY))()
    if kind <= 3:
        return getattr(some(), f"__{rng.choice(BINARY)}__")(some())
    if kind == 4:
        value, by = some(), some().as_unsigned()[:3]
        return value << by if rng.random() < 0.5 else value >> by
    if kind == 5:
        return Cat(some() for _ in range(rng.randrange(1, 4)))
    if kind == 6:
        return Mux(some(), some(), some())
    if kind == 7:
        return Array(some() for _ in range(rng.randrange(1, 4)))[some().as_unsigned()[:2]]
    value = some()
    start = rng.randrange(len(value))
    if rng.random() < 0.3:
        return Cat(value).bit_select(some().as_unsigned()[:3], min(3, len(value)))
    return Slice(value, start, rng.randrange(start + 1, len(value) + 1))


def settle(m: Module, signals: list[Signal], check: Any, rounds: int = 5, seed: int = 0) -> None:
    """Call ``check(ctx)`` with values of all sorts in the signals."""

    async def bench(ctx):
        rng = random.Random(seed)
        for _ in range(rounds):
            for signal in signals:
                ctx.set(signal, rng.choice((0, 1, -1, rng.getrandbits(32))))
            await ctx.delay(1e-9)
            check(ctx)

    keeps_a_clock = Signal()
    m.d.sync += keeps_a_clock.eq(~keeps_a_clock)
    simulate(m, bench)


@pytest.mark.parametrize("seed", range(12))
def test_expressions(seed: int):
    """A signal that takes an expression has the value that reading the expression gives."""
    rng = random.Random(seed)
    signals = [Signal(shape, name=f"s{i}") for i, shape in enumerate(SHAPES)]
    pairs = []
    m = Module()
    while len(pairs) < 150:
        made = expression(rng, signals, rng.randrange(2, 6))
        if len(made) > 200:
            continue
        taken = Signal(made.shape())
        m.d.comb += taken.eq(made)
        pairs.append((made, taken))

    def check(ctx):
        for made, taken in pairs:
            value = ctx.get(taken)
            assert value == ctx.get(made) and type(value) is int, made

    settle(m, signals, check, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_statements(seed: int):
    """Branches of every form, and parts of a signal that are assigned alone."""
    rng = random.Random(seed)
    signals = [Signal(shape, name=f"s{i}") for i, shape in enumerate(SHAPES)]
    one, two, three = (expression(rng, signals, 2).as_unsigned() for _ in range(3))
    eight, by = signals[4], signals[2]
    chain, lonely, switched, parts, lists, moved = (Signal(24, name=f"o{i}") for i in range(6))
    m = Module()
    with m.If(one):
        m.d.comb += chain.eq(1)
    with m.Elif(two):
        m.d.comb += chain.eq(2)
    with m.Elif(three == 0):
        m.d.comb += chain.eq(3)
    with m.Else():
        m.d.comb += chain.eq(4)
    with m.If(~signals[0]):
        m.d.comb += lonely.eq(7)
    with m.Switch(eight):
        with m.Case(0, 255):
            m.d.comb += switched.eq(1)
        with m.Case("1-------", "-------0"):
            m.d.comb += switched.eq(2)
        with m.Default():
            m.d.comb += switched.eq(3)
    m.d.comb += [
        parts[3:11].eq(eight),
        parts[11].eq(one == two),
        Cat(lists[:5], lists[9], lists[20:]).eq(three),
        moved.bit_select(by * 4, 5).eq(eight),
    ]
    with m.Switch(signals[0]):
        with m.Case(0):
            m.d.comb += parts[0].eq(1)
        with m.Case(1):
            m.d.comb += parts[23].eq(1)

    def check(ctx):
        a, b, c = (ctx.get(each) for each in (one, two, three))
        assert ctx.get(chain) == (1 if a else 2 if b else 3 if c == 0 else 4)
        assert ctx.get(lonely) == 7 * (not ctx.get(signals[0]))
        octet = ctx.get(eight)
        odd = 1 if octet in (0, 255) else 2 if octet >= 128 or not octet & 1 else 3
        assert ctx.get(switched) == odd
        last = 1 << 23 if ctx.get(signals[0]) else 1
        assert ctx.get(parts) == octet << 3 | (a == b) << 11 | last
        bits = c & (1 << min(len(three), 10)) - 1
        assert ctx.get(lists) == bits & 31 | (bits >> 5 & 1) << 9 | bits >> 6 << 20
        assert ctx.get(moved) == (octet & 31) << ctx.get(by) * 4 & 0xFFFFFF

    settle(m, signals, check, rounds=40, seed=seed)
