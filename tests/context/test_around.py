"""Counts of the adapters around a core reach the counters of their names."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.common.count import BYTES, COUNT
from hdl.context.tables import NAMES
from hdl.counters import connect_counters
from hdl.ingress.counters import IngressCounters
from hdl.mac.border import LOOPBACK_COUNTERS
from hdl.ports.counter_names import AROUND

INGRESS = tuple(IngressCounters.as_shape().members)
TAKEN = {f"rx_{name}" for name in INGRESS} | {*LOOPBACK_COUNTERS, *AROUND, "tx_packets"}
BOXES = [name for name in NAMES if name not in TAKEN and "_bytes_" not in name]


class Counters(wiring.Component):
    """All counters of a card of which nobody counts but the adapters."""

    def __init__(self, has):
        super().__init__(
            {
                "around": In(data.StructLayout(dict.fromkeys(has, COUNT))),
                "values": Out(data.ArrayLayout(BYTES, len(NAMES))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        connect_counters(
            m,
            self,
            ingress=SimpleNamespace(**dict.fromkeys(INGRESS, 0)),
            egress=SimpleNamespace(packets=0, bytes=0),
            border=SimpleNamespace(**dict.fromkeys(LOOPBACK_COUNTERS, 0)),
            boxes=[SimpleNamespace(counts=Signal(data.StructLayout(dict.fromkeys(BOXES, COUNT))))],
            around={name: self.around[name] for name in self.around.shape().members},
        )
        return m


@pytest.mark.parametrize("has", [AROUND, AROUND[3:5], AROUND[:1]])
def test_each_has_its_place(has):
    dut = Counters(has)

    async def bench(ctx):
        for n, name in enumerate(has):
            ctx.set(dut.around[name], 7 + n)
        await ctx.delay(1e-9)
        got = {name: ctx.get(dut.values[place]) for place, name in enumerate(NAMES)}
        wanted = {name: 7 + n for n, name in enumerate(has)}
        assert {name: count for name, count in got.items() if count} == wanted

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


def test_an_unknown_one_is_refused():
    with pytest.raises(ValueError, match="without a name or source: \\['bus_colour'\\]"):
        Simulator(Counters(("bus_colour",)))
