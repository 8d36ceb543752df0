"""Streams that are joined only while a condition holds, or looked at."""

from amaranth.hdl import Module, Value

__all__ = ["connect_stream", "passes"]


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
