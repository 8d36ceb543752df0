"""Contracts: what is checked in a simulation, and that nothing of it is built."""

import pytest
from amaranth.back import verilog
from amaranth.hdl import Fragment, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import CHECKED, keeps_offers, require, steady, taken_at_once
from hdl.common.free_list import FreeList
from tests.simulate import simulate

WORDS = stream.Signature(8)


class Wire(wiring.Component):
    """Passes a stream on; ``checks`` says what is required of it."""

    def __init__(self, checks=None):
        self._checks = checks
        super().__init__({"i": In(WORDS), "o": Out(WORDS)})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        if self._checks is not None:
            self._checks(m, platform, self)
        return m


class Joined(wiring.Component):
    """Streams in bundles of both directions."""

    def __init__(self):
        port = wiring.Signature({"req": Out(WORDS), "rsp": In(WORDS)})
        always = stream.Signature(8, always_ready=True)
        super().__init__({"asks": Out(port), "serves": In(port), "tells": Out(always)})

    def elaborate(self, platform):
        m = Module()
        keeps_offers(m, platform, self, but=("serves.rsp",))
        return m


def all_of_them(m, platform, dut):
    require(m, platform, ~dut.i.valid | (dut.i.payload != 3), "no 3")
    steady(m, platform, dut.i, "it stays")
    taken_at_once(m, platform, dut.o, "nobody waits")
    keeps_offers(m, platform, dut)


def text_of(component, platform):
    members = [component.i, component.o]
    ports = [getattr(one, name) for one in members for name in ("payload", "valid", "ready")]
    return verilog.convert(Fragment.get(component, platform), ports=ports, emit_src=False)


def test_nothing_is_built():
    """What is built is the same text with contracts and without; a model has them."""
    plain, built, model = (
        text_of(Wire(checks), platform)
        for checks, platform in (
            (None, "verilog"),
            (all_of_them, "verilog"),
            (all_of_them, CHECKED),
        )
    )
    assert built == plain
    assert "assert" not in built
    assert model.count("assert") == 4


def play(checks, beats):
    """Drive ``beats`` of (valid, payload, ready), a cycle each."""
    dut = Wire(checks)

    async def bench(ctx):
        for valid, payload, ready in beats:
            ctx.set(dut.i.valid, valid)
            ctx.set(dut.i.payload, payload)
            ctx.set(dut.o.ready, ready)
            await ctx.tick()

    simulate(dut, bench)


KEPT = [(1, 5, 0), (1, 5, 0), (1, 5, 1), (0, 7, 0), (1, 6, 1), (1, 4, 1)]


@pytest.mark.parametrize(
    "check, text",
    [
        (lambda m, platform, dut: steady(m, platform, dut.i, "it stays"), "it stays"),
        (keeps_offers, "o: what is offered stays until it is taken"),
    ],
)
def test_an_offer_stays_until_it_is_taken(check, text):
    play(check, KEPT)
    with pytest.raises(AssertionError, match=text):
        play(check, [(1, 5, 0), (0, 5, 0), (0, 5, 0)])
    with pytest.raises(AssertionError, match=text):
        play(check, [(1, 5, 0), (1, 6, 1), (0, 0, 0)])


def test_what_is_offered_is_taken_at_once():
    def check(m, platform, dut):
        taken_at_once(m, platform, dut.i, "nobody waits")

    play(check, [(1, 5, 1), (0, 5, 0), (1, 6, 1), (0, 0, 0)])
    with pytest.raises(AssertionError, match="nobody waits"):
        play(check, KEPT)


def test_streams_in_bundles_are_found():
    """Those that flow out, whatever bundle they are in; not those that never wait."""
    dut = Joined()
    text = verilog.convert(
        Fragment.get(dut, CHECKED),
        ports=[dut.asks.req.valid, dut.asks.req.ready, dut.asks.req.payload],
        emit_src=False,
    )
    assert "asks.req: what is offered stays" in text
    assert text.count("what is offered") == 1
    with pytest.raises(ValueError, match="asks.rsp"):
        keeps_offers(Module(), CHECKED, dut, but=("asks.rsp",))


@pytest.mark.parametrize(
    "steps, text",
    [
        (("give", 2), "no entry is given back twice"),
        (("take", None, "give", 0, "give", 0), "no entry is given back twice"),
        (("take", None, "take", None), "no number is taken before it is there"),
        (("both", 0), "no entry is given back twice"),
    ],
)
def test_a_pool_notices_who_breaks_its_rules(steps, text):
    dut = FreeList(entries=4)

    async def bench(ctx):
        await ctx.tick().until(dut.ready & dut.room)
        await ctx.tick().repeat(2)
        for what, number in zip(steps[::2], steps[1::2], strict=True):
            ctx.set(dut.take, what in ("take", "both"))
            ctx.set(dut.give, what in ("give", "both"))
            ctx.set(dut.given, number or 0)
            await ctx.tick()
        ctx.set(dut.take, 0)
        ctx.set(dut.give, 0)
        await ctx.tick().repeat(3)

    with pytest.raises(AssertionError, match=text):
        simulate(dut, bench)
