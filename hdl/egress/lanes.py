"""In which order headers are built: answers without payload pass those that wait for theirs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.skid import Register
from hdl.config import NicConfig
from hdl.ports.headers import TxHeader

__all__ = ["HeaderLanes"]

#: Beats of payload in front of a header that may be built: more than the cycles from here to
#: ``Merge``, which is never without a packet therefore, and not many more.
AHEAD = 32
#: Bits of a payload's length.
LENGTH = 13


class HeaderLanes(wiring.Component):
    """Two lanes of headers in front of one builder.

    What has been built goes out in its order, so a packet is built when the one before it is nearly
    out: what comes behind a long one waits here, where an answer can pass it. A packet of the other
    lane follows each answer, if there is one that may be built, so neither lane starves.
    Members: ``header``: packets in the order of their payload. ``answer``: packets that have none,
    of which the sender knows that they may pass the others. ``stepped``: a beat of payload has
    left. ``o``: to the builder. Latency: 0 cycles for ``header``, 1 for ``answer``. Throughput: one
    per cycle, an answer every other. Errors: none. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._lane_bits = ceil_log2(config.bytes_per_beat)
        headers = stream.Signature(TxHeader)
        super().__init__(
            {"header": In(headers), "answer": In(headers), "stepped": In(1), "o": Out(headers)}
        )

    def elaborate(self, platform):
        m = Module()
        bits = LENGTH - self._lane_bits + 1
        m.submodules.answers = answers = Register(shape=TxHeader)
        connect(m, flipped(self.answer), answers.i)
        # Beats of the header that has just gone, which ``owed`` has a cycle later.
        came, owed, stepped = Signal(bits), Signal(bits + 1), Signal()
        passed, chosen, opens, entered = (Signal() for _ in range(4))
        length = self.header.payload.length
        beats = length[self._lane_bits :] + length[: self._lane_bits].any()
        waits = self.header.valid & opens
        m.d.comb += [
            opens.eq((owed < AHEAD) & (came < AHEAD)),
            chosen.eq(answers.o.valid & ~(passed & waits)),
            self.o.valid.eq(answers.o.valid | waits),
            self.o.payload.eq(self.header.payload),
            answers.o.ready.eq(self.o.ready & chosen),
            self.header.ready.eq(self.o.ready & ~chosen & opens),
            entered.eq(self.header.valid & self.header.ready),
        ]
        with m.If(chosen):
            m.d.comb += self.o.payload.eq(answers.o.payload)
        m.d.sync += [
            came.eq(Mux(entered, beats, 0)),
            stepped.eq(self.stepped),  # it comes late
            owed.eq(owed + came - stepped),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += passed.eq(chosen)
        text = "no more payload leaves than headers have told of"
        require(m, platform, ~stepped | (owed + came != 0), text)
        text = "an answer that passes others has no payload"
        require(m, platform, ~answers.o.valid | (answers.o.payload.length == 0), text)
        return m
