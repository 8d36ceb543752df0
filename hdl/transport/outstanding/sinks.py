"""Who has which sink of a READ."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.streams import connect_stream
from hdl.config import NicConfig
from hdl.ports.jobs import SHORT_SINK_SGES
from hdl.ports.rows import ReadSink

from .places import Places

__all__ = ["SinkPool"]


class SinkPool(wiring.Component):
    """Hands out the sinks in which the SGEs of outstanding READs lie (``ReadSink``).

    Members: ``short``, ``long``: the number of a free sink, to be taken for a READ; there is no
    ``long`` one on a card whose WQEs have so few SGEs that none is needed. ``any``: a
    short one (bit 0), a long one (1) is there or on its way. ``dropped``: the sink of
    a READ whose list is dropped; ``back``: of one that has ended, when nobody reads it any more; it
    waits for the former. ``ready``: after reset all are free. Latency, throughput: as ``Places``.
    Errors: none; nobody may give what is not his. Reset: ``config.read_sinks`` cycles until
    ``ready``.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        number = stream.Signature(ReadSink.as_shape()["number"].shape)
        super().__init__(
            {
                "short": Out(number),
                "long": Out(number),
                "any": Out(2),
                "dropped": In(stream.Signature(ReadSink, always_ready=True)),
                "back": In(stream.Signature(ReadSink)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        back, dropped, config = self.back.payload, self.dropped.payload, self._config
        m.submodules.short = short = Places(places=config.read_sinks)
        pools = [(short, self.short, 0)]
        m.d.comb += [self.ready.eq(short.ready), self.back.ready.eq(short.back.ready)]
        if config.max_sge > SHORT_SINK_SGES:
            m.submodules.long = long = Places(places=config.long_sinks)
            pools.append((long, self.long, 1))
            m.d.comb += [
                self.ready.eq(short.ready & long.ready),
                self.back.ready.eq(Mux(back.long, long.back.ready, short.back.ready)),
            ]
        for pool, free, is_long in pools:
            connect_stream(m, pool.o, free)
            m.d.comb += [
                self.any[is_long].eq(pool.any),
                pool.give.eq(self.dropped.valid & (dropped.long == is_long)),
                pool.given.eq(dropped.number),
                pool.back.valid.eq(self.back.valid & (back.long == is_long)),
                pool.back.payload.eq(back.number),
            ]
        return m
