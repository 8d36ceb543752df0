"""Requests of one turn to the fetch engine, one WQE a cycle."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.ports.jobs import FetchRequest
from hdl.ports.numbers import QpNumber, send_queue

from .fetch_turn import BATCH

__all__ = ["FetchRequests"]


class FetchRequests(wiring.Component):
    """Asks for ``count`` WQEs of ``qp`` from ``position`` on, and polls the avail index behind.

    Members: ``start`` (a cycle, not while ``busy``) with ``qp``, ``function``, ``position``,
    ``count``, ``known`` (the avail index), ``poll``; ``o`` to the fetch engine. A poll is a request
    for the position that the index tells.
    Latency: 1 cycle. Throughput: one request a cycle. Errors: none. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "qp": In(QpNumber),
                "function": In(8),
                "position": In(16),
                "count": In(range(BATCH + 1)),
                "known": In(16),
                "poll": In(1),
                "o": Out(stream.Signature(FetchRequest)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request = self.o.payload
        qp, position = Signal(QpNumber, reset_less=True), Signal(16, reset_less=True)
        left, poll = Signal(range(BATCH + 1)), Signal()
        m.d.comb += [
            self.busy.eq((left != 0) | poll),
            self.o.valid.eq(self.busy),
            request.qp.eq(qp),
            request.queue.eq(send_queue(self._config, qp)),
            request.position.eq(Mux(left != 0, position, request.known)),
        ]
        with m.If(self.o.ready):
            with m.If(left != 0):
                m.d.sync += [left.eq(left - 1), position.eq(position + 1)]
            with m.Else():
                m.d.sync += poll.eq(0)
        with m.If(self.start):
            m.d.sync += [
                request.function.eq(self.function),
                request.known.eq(self.known),
                qp.eq(self.qp),
                position.eq(self.position),
                left.eq(self.count),
                poll.eq(self.poll),
            ]
        return m
