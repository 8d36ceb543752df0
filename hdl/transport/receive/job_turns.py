"""Whose job and record come next: those of a request, or the completer's."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.ports.jobs import ScatterJob

from .types import Pending

__all__ = ["JobTurns"]


class JobTurns(wiring.Component):
    """Joins the jobs and records of requests and of the completer, which work beside each other.

    Records come in the order of their jobs: with the first of the two a side has the turn, and
    keeps it until the other one has been taken. One that invalidates a key keeps it until that is
    ``decided``, as no later job may be checked before (see ``Commit``). A request goes first if
    both want the turn: it offers its job in one cycle of three at most.
    Members: ``request_job``, ``request_pending`` of responder and dropper; ``wanted``: one of them
    is offered, or will be; ``completer_job``, ``completer_pending``; ``job``, ``pending``;
    ``decided``, of ``Commit``.
    Latency: none. Throughput: a job and its record in a cycle. Errors: none. Reset: nobody's turn.
    """

    def __init__(self):
        super().__init__(
            {
                "request_job": In(stream.Signature(ScatterJob)),
                "request_pending": In(stream.Signature(Pending)),
                "wanted": In(1),
                "completer_job": In(stream.Signature(ScatterJob)),
                "completer_pending": In(stream.Signature(Pending)),
                "job": Out(stream.Signature(ScatterJob)),
                "pending": Out(stream.Signature(Pending)),
                "decided": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        kept, owner = Signal(), Signal()  # the turn is kept; by the completer
        made, recorded = Signal(), Signal()  # the turn's job has been taken, its record has
        deciding = Signal()  # whether a key became invalid is not known
        mine = Signal()  # the completer's turn
        m.d.comb += mine.eq(Mux(kept, owner, ~self.wanted))
        offered = self.request_job.valid | self.request_pending.valid
        require(m, platform, self.wanted | ~offered, "a request that is offered is wanted")
        taken = {}
        for name in ("job", "pending"):
            out = getattr(self, name)
            request, completer = (
                getattr(self, f"request_{name}"),
                getattr(self, f"completer_{name}"),
            )
            m.d.comb += [
                out.valid.eq(Mux(mine, completer.valid, request.valid)),
                out.payload.eq(Mux(mine, completer.payload, request.payload)),
                # Told early: a request has the turn whenever it wants it and nobody keeps it.
                request.ready.eq(out.ready & ~(kept & owner)),
                completer.ready.eq(out.ready & mine),
            ]
            taken[name] = out.valid & out.ready
        has_job, has_record = Signal(), Signal()
        record = self.pending.payload
        whole = has_record & (has_job | (taken["pending"] & record.jobless))
        invalidates = taken["pending"] & record.invalidate
        m.d.comb += [
            has_job.eq(made | taken["job"]),
            has_record.eq(recorded | taken["pending"]),
        ]
        m.d.sync += [
            made.eq(has_job & ~whole),
            recorded.eq(has_record & ~whole),
            deciding.eq(invalidates | (deciding & ~self.decided)),
            kept.eq(((has_job | has_record) & ~whole) | invalidates | (deciding & ~self.decided)),
        ]
        with m.If(~kept):
            m.d.sync += owner.eq(mine)
        text = "a record without a job comes between two jobs"
        alone = taken["pending"] & record.jobless
        require(m, platform, ~alone | ~(made | taken["job"]), text)
        return m
