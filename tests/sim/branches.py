"""A component of which a bench enters some branches (``test_reached.py``)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Branches(wiring.Component):
    """Two of them, one of which is never told to go: a state, a case and an ``Else`` stay away."""

    go: In(1)
    kind: In(2)
    o: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.used = used = Part()
        m.submodules.idle = Part()
        m.d.comb += [used.go.eq(self.go), used.kind.eq(self.kind), self.o.eq(used.o)]
        return m


class Part(wiring.Component):
    """A state machine, a choice of registers and one of wires."""

    go: In(1)
    kind: In(2)
    o: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(4)
        m.d.comb += self.o[4:].eq(count)
        with m.FSM():
            with m.State("REST"), m.If(self.go):
                m.next = "WORK"
            with m.State("WORK"):
                m.d.sync += count.eq(count + 1)
                with m.If(self.go), m.If(self.kind == 3):
                    m.next = "BROKEN"
            with m.State("BROKEN"):
                m.next = "REST"
        with m.Switch(self.kind):
            with m.Case(0, 1):
                m.d.comb += self.o[0].eq(1)
            with m.Case(2):
                m.d.comb += self.o[1].eq(1)
            with m.Default():
                m.d.comb += self.o[2].eq(1)
        return m
