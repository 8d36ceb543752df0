"""Packets of P-Tile by their kind: completions of the card's reads, and requests of the host."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.fifo import StreamFifo
from hdl.pcie.completer import MOST_WRITTEN, cq_beat
from hdl.pcie.descriptors import completion_beat, cq_descriptor

from .receive import received
from .tlp import completion, is_completion, request, request_layout

__all__ = ["Bars", "Route"]

#: (function, BAR) -> bits of an offset in it.
Bars = Mapping[tuple[int, int], int]
#: Requests that wait for the registers without holding the completions behind them.
REQUESTS = 16


def _kept() -> data.StructLayout:
    """A request as it waits for the registers: the data of a write that is carried out."""
    return data.StructLayout(
        {
            "head": cq_descriptor(), "words": 32 * MOST_WRITTEN, "first_be": 4, "last_be": 4,
            "abort": 1,
        }
    )  # fmt: skip


class Route(wiring.Component):
    """Translates headers into descriptors, and keeps requests for the registers.

    Parameters: ``bars``: the size of each BAR, for the packet has the address on the bus.
    Members: ``i``: packets; ``completions``: ``completion_beat``; ``requests``: beats of
    CQ, one for each request, for ``Completer``.
    Waits: a packet behind 16 requests that wait for the registers waits as well.
    Latency: 0 cycles for completions, 2 for requests. Throughput: a beat a cycle.
    Errors: an aborted packet is marked. Reset: empty.
    """

    def __init__(self, *, bars: Bars):
        self._bars = bars
        super().__init__(
            {
                "i": In(stream.Signature(received())),
                "completions": Out(stream.Signature(completion_beat())),
                "requests": Out(stream.Signature(cq_beat())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.kept = kept = StreamFifo(shape=_kept(), depth=REQUESTS)
        beat = self.i.payload
        inside, was, answer = Signal(), Signal(), Signal()
        m.d.comb += [
            answer.eq(Mux(inside, was, is_completion(beat.header))),
            self.completions.valid.eq(self.i.valid & answer),
            self.completions.p.data.eq(beat.data),
            self.completions.p.head.eq(completion(m, beat.header)),
            self.completions.p.abort.eq(beat.abort),
            self.completions.p.last.eq(beat.last),
            self.i.ready.eq(Mux(answer, self.completions.ready, kept.i.ready)),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [inside.eq(~beat.last), was.eq(answer)]

        fresh, held = Signal(_kept()), Signal(_kept(), reset_less=True)
        header = data.View(request_layout(), beat.header)
        m.d.comb += [
            fresh.head.eq(
                request(
                    m, beat.header, function=beat.function, bar=beat.bar,
                    aperture=self._aperture(m, beat.function, beat.bar),
                )
            ),
            fresh.words.eq(beat.data),
            fresh.first_be.eq(header.first_be),
            fresh.last_be.eq(header.last_be),
            kept.i.valid.eq(self.i.valid & ~answer & beat.last),
            kept.i.payload.eq(Mux(inside, held, fresh)),
            kept.i.payload.abort.eq(beat.abort | (inside & held.abort)),
        ]  # fmt: skip
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += held.eq(Mux(inside, held, fresh))
            m.d.sync += held.abort.eq(beat.abort | (inside & held.abort))
        one, out = kept.o.payload, self.requests.payload
        m.d.comb += [
            out.data.eq(Cat(one.head.as_value(), one.words)),
            out.user.first_be.eq(one.first_be),
            out.user.last_be.eq(one.last_be),
            out.user.discontinue.eq(one.abort),
            out.last.eq(1),
            self.requests.valid.eq(kept.o.valid),
            kept.o.ready.eq(self.requests.ready),
        ]
        return m

    def _aperture(self, m: Module, function, bar) -> Signal:
        """Bits of an offset in the BAR that a request is for."""
        bits = Signal(6)
        with m.Switch(Cat(bar, function)):
            for (number, one), size in self._bars.items():
                with m.Case(number << 3 | one):
                    m.d.comb += bits.eq(size)
        return bits
