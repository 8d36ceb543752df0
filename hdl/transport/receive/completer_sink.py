"""The sinks of READ responses: the send WQEs whose SGEs take their data, asked for early."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.config import NicConfig
from hdl.ports.jobs import RecvFetched, SinkRequest

__all__ = ["SinkAsk"]


class SinkAsk(wiring.Component):
    """Asks for the sink of the response in hand, or of the next one when that has had its job.

    Members: ``own``: the WQE of the response in hand; ``wanted``: it needs its sink; ``unwanted``
    (a cycle): it does not, whatever was asked for. ``over``: that response has had its job: so it
    is when ``next`` asks, and never when ``wanted`` does. ``next``: the next response may be asked
    for; ``own_next``: it goes on with ``own``, if it has ``come``; ``other_known``: else it is one
    of ``other``; ``gone`` (a cycle): it was dropped. ``take``: takes the answer, ``fetched``, if it
    is ``here``. ``busy``: an answer is to come. ``req``, ``rsp``: RecvFetch's, which keeps the line
    of its last answer until the next request.
    Latency: 4 cycles from ``next`` to ``here`` if the sink is at hand. Throughput: one at a time.
    Errors: in ``fetched.status``. Reset: nothing is asked for.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        flags = ("wanted", "unwanted", "over", "next", "own_next", "come", "other_known", "gone")
        super().__init__(
            {name: In(1) for name in (*flags, "take")}
            | {
                "own": In(SinkRequest),
                "other": In(SinkRequest),
                "here": Out(1),
                "fetched": Out(RecvFetched),
                "busy": Out(1),
                "req": Out(stream.Signature(SinkRequest)),
                "rsp": In(stream.Signature(RecvFetched)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        choice, kept = Signal(SinkRequest), Signal(SinkRequest, reset_less=True)
        own = self.wanted | (self.next & self.own_next & self.come)
        other = self.next & ~self.own_next & self.other_known
        dropped = Signal()  # nobody wants the answer any more
        m.d.comb += [
            # What is ``wanted``, or may be asked for ``next``, is known late; ``over`` is not.
            choice.eq(Mux(self.over & ~self.own_next, self.other, self.own)),
            self.fetched.eq(self.rsp.payload),
        ]
        with m.FSM(name="sink") as fsm:
            # IDLE: asks for a sink that is needed; ends with the request.
            with m.State("IDLE"):
                m.d.comb += self.req.valid.eq(own | other)
                m.d.sync += [kept.eq(choice), dropped.eq(self.gone)]
                with m.If(self.req.valid):
                    m.next = "ASK"
                    with m.If(self.req.ready):
                        m.next = "ASKED"
            # ASK: keeps up the request; ends when it is taken.
            with m.State("ASK"):
                m.d.comb += [choice.eq(kept), self.req.valid.eq(1)]
                with m.If(self.req.ready):
                    m.next = "ASKED"
            # ASKED: waits for the answer; ends when it is taken, or dropped.
            with m.State("ASKED"):
                m.d.comb += [
                    self.here.eq(self.rsp.valid & ~dropped),
                    self.rsp.ready.eq(self.take | dropped),
                ]
                with m.If(self.rsp.valid & self.rsp.ready):
                    m.next = "IDLE"
        m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
        with m.If(self.busy & (self.unwanted | self.gone)):
            m.d.sync += dropped.eq(1)
        m.d.comb += self.req.payload.eq(choice)
        asks = ~self.busy & self.req.valid
        text = "the next response asks when the one in hand has had its job, and not before"
        require(m, platform, ~asks | (self.wanted != self.over), text)
        return m
