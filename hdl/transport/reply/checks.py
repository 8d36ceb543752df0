"""READ responses that have been handed to the gather, until their checks have come."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import taken_at_once
from hdl.common.count import COUNT, increment
from hdl.common.fifo import StreamFifo
from hdl.ports.jobs import TxChecked
from hdl.ports.numbers import QpNumber

__all__ = ["PENDING", "LARGE", "Response", "ReplyChecks"]

#: Responses whose checks are awaited: as many as the page cache has misses on their way.
PENDING = 16
#: As many of them when they are large: what waits here stands in front of the requester's packets.
LARGE = 4


class Response(data.Struct):
    """A response packet that has been handed over, and what a NAK in its place says."""

    qp: QpNumber
    generation: 1  # of its QP when it was handed over: ``QpReply.generation``
    psn: 24
    msn: 24  # of the message before it


class ReplyChecks(wiring.Component):
    """Pairs each response with the gather's answer, in order, and passes on those refused.

    This is the commit stage of the replier. The rows are speculative: they count a response as sent
    when it is handed over. A good answer leaves it at that. ``ReplyTurns`` rolls back what is
    ``refused``. Answers are always taken, whatever happens to the refused ones: a NAK needs a place
    in the gather, which might otherwise be full of what waits for that NAK.
    Members: ``i`` one for each response with payload; ``large``: the next one may be large,
    ``room``: it may be handed over; ``checked`` the gather's answers; ``idle``: nothing is awaited
    and nothing refused; ``good`` counts (``COUNT`` bits, wraps).
    Latency: 2 cycles from ``i`` to the earliest answer taken, 2 more to ``refused``. Throughput:
    one a cycle. Errors: ``refused``. Reset: empty.
    """

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(Response)),
                "large": In(1),
                "room": Out(1),
                "checked": In(stream.Signature(TxChecked)),
                "refused": Out(stream.Signature(Response)),
                "idle": Out(1),
                "good": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.pending = pending = StreamFifo(shape=Response, depth=PENDING)
        # A refused response stops ReplyPackets: what it hands over before it sees that fits, too.
        m.submodules.refusals = refusals = StreamFifo(shape=Response, depth=2 * PENDING)
        wiring.connect(m, wiring.flipped(self.i), pending.i)
        wiring.connect(m, refusals.o, wiring.flipped(self.refused))
        bad = self.checked.payload.status != 0
        answered = self.checked.valid & self.checked.ready
        m.d.comb += [
            self.room.eq(pending.level < Mux(self.large, LARGE, PENDING)),
            self.checked.ready.eq(pending.o.valid),
            pending.o.ready.eq(self.checked.valid),
            refusals.i.valid.eq(answered & bad),
            refusals.i.payload.eq(pending.o.payload),
            self.idle.eq((pending.level == 0) & (refusals.level == 0)),
        ]
        taken_at_once(m, platform, pending.i, "each response that is handed over is remembered")
        taken_at_once(m, platform, refusals.i, "each refused response is remembered")
        with m.If(answered & ~bad):
            increment(m, self.good)
        return m
