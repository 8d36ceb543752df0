"""Streams that are joined only while a condition holds, or looked at."""

from amaranth.hdl import Module, Mux, Signal, Value

__all__ = ["connect_stream", "one_of", "passes"]


def passes(stream) -> Value:
    """Whether something passes on a stream in this cycle."""
    return stream.valid & stream.ready


def connect_stream(m: Module, source, sink) -> None:
    """Join two streams under the condition that holds where this is called.

    ``wiring.connect`` joins them for good; here another source has the sink at other times.
    """
    m.d.comb += [
        sink.payload.eq(source.payload),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def one_of(m: Module, first, second, sink) -> None:
    """Join two streams with one, without a register: ``first`` comes first, and an offer that has
    been made stays."""
    waits, kept, chosen = Signal(), Signal(), Signal()
    m.d.comb += [
        chosen.eq(Mux(waits, kept, ~first.valid)),
        sink.valid.eq(Mux(chosen, second.valid, first.valid)),
        sink.payload.eq(Mux(chosen, second.payload.as_value(), first.payload.as_value())),
        first.ready.eq(~chosen & sink.ready),
        second.ready.eq(chosen & sink.ready),
    ]
    m.d.sync += [waits.eq(sink.valid & ~sink.ready), kept.eq(chosen)]
