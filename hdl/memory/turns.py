"""Jobs of two sources for one scatter: packets that came, and pieces of MEMCPYs."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require, taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_stream
from hdl.config import NicConfig
from hdl.ports.jobs import Effects, ScatterChecked, ScatterJob, ScatterKind

from .scatter import EFFECTS

__all__ = ["ScatterSource", "ScatterTurns"]

#: Kinds of jobs to which a packet of payload belongs.
BEARERS = (ScatterKind.DISCARD, ScatterKind.LINE, ScatterKind.KEY, ScatterKind.ATOMIC_WRITE)


class ScatterSource(wiring.Signature):
    """What a source of jobs has of the scatter, seen from the source; see ``Scatter``."""

    def __init__(self, config: NicConfig):
        super().__init__(
            {
                "job": Out(stream.Signature(ScatterJob)),
                "checked": In(stream.Signature(ScatterChecked)),
                "effects": Out(stream.Signature(Effects)),
                "payload": Out(packet_stream(config.width)),
            }
        )


class ScatterTurns(wiring.Component):
    """Gives the scatter the jobs of ``packets`` and of ``copies`` in turn, and each its answers.

    Members: ``packets``, ``copies``: the sources; ``o`` to the scatter; ``released`` In, of the
    scatter; ``landed`` Out, a cycle: a job of ``copies`` has been written.
    The scatter does everything in the order of its jobs. So whose turn it was is kept in that order
    for what follows a job: its answer, its payload if it has some, its effects, its end.
    Latency: none for a job; 2 cycles until what belongs to it may pass. Throughput: as the
    scatter's. Errors: none. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        source = ScatterSource(config)
        super().__init__(
            {
                "packets": In(source),
                "copies": In(source),
                "o": Out(source),
                "released": In(1),
                "landed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Whose each job is (1: of ``copies``), of those that still wait for it.
        m.submodules.answers = answers = StreamFifo(shape=1, depth=EFFECTS)
        m.submodules.payloads = payloads = StreamFifo(shape=1, depth=EFFECTS)
        m.submodules.effects = effects = StreamFifo(shape=1, depth=EFFECTS)
        m.submodules.ends = ends = StreamFifo(shape=1, depth=EFFECTS)
        chosen, taken = self._choose(m)
        bears = Value.cast(self.o.job.payload.kind).matches(*BEARERS)
        for order, enters in (
            (answers, taken),
            (payloads, taken & bears),
            (effects, taken),
        ):
            m.d.comb += [order.i.valid.eq(enters), order.i.payload.eq(chosen)]
            taken_at_once(m, platform, order.i, "it is remembered whose each job is")
        checked, released = self.o.checked, self.o.effects.valid & self.o.effects.ready
        for part, mine in ((self.packets, ~answers.o.payload), (self.copies, answers.o.payload)):
            m.d.comb += [
                part.checked.payload.eq(checked.payload),
                part.checked.valid.eq(checked.valid & answers.o.valid & mine),
            ]
        m.d.comb += checked.ready.eq(
            answers.o.valid
            & Mux(answers.o.payload, self.copies.checked.ready, self.packets.checked.ready)
        )
        for name, order in (("payload", payloads), ("effects", effects)):
            out, mine = getattr(self.o, name), order.o.payload
            packets, copies = getattr(self.packets, name), getattr(self.copies, name)
            m.d.comb += [
                out.valid.eq(order.o.valid & Mux(mine, copies.valid, packets.valid)),
                copies.ready.eq(order.o.valid & mine & out.ready),
                packets.ready.eq(order.o.valid & ~mine & out.ready),
            ]
        beat, copied = self.packets.payload.payload, self.copies.payload.payload
        m.d.comb += self.o.payload.payload.eq(
            Mux(payloads.o.payload, copied.as_value(), beat.as_value())
        )
        self._effects(m, effects.o.payload)
        m.d.comb += [
            answers.o.ready.eq(self.o.checked.valid & self.o.checked.ready),
            payloads.o.ready.eq(
                self.o.payload.valid & self.o.payload.ready & self.o.payload.payload.last
            ),
            effects.o.ready.eq(released),
            ends.i.valid.eq(released),
            ends.i.payload.eq(effects.o.payload),
            ends.o.ready.eq(self.released),
            self.landed.eq(self.released & ends.o.payload),
        ]
        taken_at_once(m, platform, ends.i, "it is remembered whose each end is")
        require(m, platform, ~self.released | ends.o.valid, "no job ends before its effects")
        return m

    def _effects(self, m: Module, mine: Value) -> None:
        """A job of ``copies`` brings nothing about. What its effects name besides means nothing
        then, so it is not chosen."""
        out = self.o.effects.payload
        m.d.comb += out.eq(self.packets.effects.payload)
        with m.If(mine):
            nothing = [out[name].eq(0) for name in ("discard", "saved", "complete", "reply")]
            m.d.comb += [*nothing, out.qp.eq(self.copies.effects.payload.qp)]

    def _choose(self, m: Module) -> tuple[Signal, Value]:
        """Whose job is next (1: that of ``copies``), and when it is taken. Both in turn; an offer
        stays."""
        packets, copies, job = self.packets.job, self.copies.job, self.o.job
        waits, kept, turn = Signal(), Signal(), Signal()
        chosen, taken = Signal(), job.valid & job.ready
        m.d.comb += [
            chosen.eq(Mux(waits, kept, Mux(turn, copies.valid, ~packets.valid))),
            job.valid.eq(Mux(chosen, copies.valid, packets.valid)),
            job.payload.eq(Mux(chosen, copies.payload.as_value(), packets.payload.as_value())),
            copies.ready.eq(chosen & job.ready),
            packets.ready.eq(~chosen & job.ready),
        ]
        m.d.sync += [waits.eq(job.valid & ~job.ready), kept.eq(chosen)]
        with m.If(taken):
            m.d.sync += turn.eq(~chosen)
        return chosen, taken
