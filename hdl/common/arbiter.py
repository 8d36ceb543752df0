"""Merges streams, one beat at a time, in turn."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .skid import Skid

__all__ = ["StreamArbiter"]


class StreamArbiter(wiring.Component):
    """``i0`` .. ``i<n-1>`` to ``o``, round robin by beat.

    Latency: 1 cycle. Throughput: one beat per cycle. Reset: empty.
    """

    def __init__(self, *, shape, inputs: int):
        if inputs < 1:
            raise ValueError(f"Inputs must be at least 1 stream, not {inputs!r}")
        self._shape, self._inputs = shape, inputs
        payloads = stream.Signature(shape)
        super().__init__({f"i{n}": In(payloads) for n in range(inputs)} | {"o": Out(payloads)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.output = output = Skid(shape=self._shape)
        wiring.connect(m, output.o, wiring.flipped(self.o))
        inputs = [getattr(self, f"i{n}") for n in range(self._inputs)]
        last, chosen = Signal(range(self._inputs)), Signal(range(self._inputs))
        valid = Cat(port.valid for port in inputs)
        for turn in range(self._inputs):
            with m.If(last == turn):
                for step in reversed(range(1, self._inputs + 1)):
                    candidate = (turn + step) % self._inputs
                    with m.If(valid[candidate]):
                        m.d.comb += chosen.eq(candidate)
        for n, port in enumerate(inputs):
            with m.If(chosen == n):
                m.d.comb += [
                    output.i.payload.eq(port.payload),
                    output.i.valid.eq(port.valid),
                    port.ready.eq(output.i.ready),
                ]
        with m.If(output.i.valid & output.i.ready):
            m.d.sync += last.eq(chosen)
        return m
