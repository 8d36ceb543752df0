"""One stream to several consumers: a beat leaves when each of them has taken it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamFork"]


class StreamFork(wiring.Component):
    """``i`` to ``o0`` .. ``o<n-1>``; ``done`` (one cycle) when the last of them has taken a beat.

    Latency: 0 cycles. Throughput: one beat per cycle when all are ready. Reset: nobody has taken.
    """

    def __init__(self, *, shape, outputs: int):
        if outputs < 1:
            raise ValueError(f"Outputs must be at least 1 stream, not {outputs!r}")
        self._outputs = outputs
        payloads = stream.Signature(shape)
        super().__init__(
            {"i": In(payloads), "done": Out(1)} | {f"o{n}": Out(payloads) for n in range(outputs)}
        )

    def elaborate(self, platform):
        m = Module()
        ports = [getattr(self, f"o{n}") for n in range(self._outputs)]
        taken, taking = Signal(self._outputs), Signal(self._outputs)
        for n, port in enumerate(ports):
            m.d.comb += [
                port.valid.eq(self.i.valid & ~taken[n]),
                port.payload.eq(self.i.payload),
                taking[n].eq(taken[n] | port.ready),
            ]
        m.d.comb += [
            self.i.ready.eq(taking.all()),
            self.done.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.done):
            m.d.sync += taken.eq(0)
        with m.Elif(self.i.valid):
            m.d.sync += taken.eq(taking)
        return m
