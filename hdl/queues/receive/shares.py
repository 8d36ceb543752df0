"""How many lines each receive source may have, and which sources wait for lines."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.jobs import WQE_LINE_BITS
from hdl.ports.numbers import QpNumber

from .policy import PrefetchPolicy

__all__ = ["LineGrants", "ShareMeter", "SourceShare"]


class SourceShare(data.Struct):
    """What a receive source's share of the lines is worked out from, and the share."""

    stamp: 16  # answers of all queues up to its last one
    pace: 15  # answers of all queues for one of its own, average, in eighths; 0: not known yet
    share: 4  # lines in proportion to that: ``2**share``; 0: none
    run: 4  # its longest run of late
    burst: 4  # how long its last run has been so far


class LineGrants(wiring.Component):
    """Says whether a source may have one more line, and keeps the sources that wait for lines.

    A source wants lines for its longest run of late, and more in proportion to how often it is
    asked. The latter it takes while there is room; the former too if nobody waits, else it waits
    its turn. So when there are fewer lines than all want, those go to the source that was asked
    longest ago, and so will be asked soonest if sources are asked in turn: as many sources as there
    may be, their WQEs are there when a run begins.

    Members: ``share``, ``count``, ``given``, ``used``, ``late``: of the source at hand (SourceRow);
    ``free``: lines. A cycle later ``may``: it may have one more now; ``wants``: it should have one
    more when there is room. ``wait``: sources that begin to wait, always ready: each waits at most
    once, which the caller keeps. ``first``: the source that has waited longest, valid while there
    is room; it stays until it is taken. ``its_turn``: the source at hand is that one.
    Latency: as said; 2 cycles from ``wait`` to ``first``. Reset: nobody waits.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "share": In(SourceShare),
                "count": In(WQE_LINE_BITS),
                "given": In(1),
                "used": In(1),
                "late": In(1),
                "free": In(WQE_LINE_BITS),
                "may": Out(1),
                "wants": Out(1),
                "wait": In(stream.Signature(QpNumber)),
                "first": Out(stream.Signature(QpNumber)),
                "its_turn": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._config.wqes_ahead == 1:  # nothing is fetched ahead
            m.d.comb += self.wait.ready.eq(1)
            return m
        policy, share = PrefetchPolicy(self._config), self.share

        m.submodules.waiting = waiting = StreamFifo(shape=QpNumber, depth=self._config.qps)
        connect(m, flipped(self.wait), waiting.i)
        room, some = Signal(), Signal()
        m.d.sync += [room.eq(self.free > policy.spared), some.eq(self.free > policy.kept)]
        m.d.comb += [
            self.first.valid.eq(waiting.o.valid & room),
            self.first.payload.eq(waiting.o.payload),
            waiting.o.ready.eq(self.first.ready),
        ]

        # A source that was only notified gets one line while half of all are free.
        none, first = self.count == self.given, Signal()
        by_pace, by_run = Signal(), Signal()
        m.d.comb += [
            first.eq(some & ((none & (share.share != 0)) | (self.late & by_run))),
            by_pace.eq(
                (share.share != 0) & self._few(self.count >> share.share == 0, 1 << share.share)
            ),
            by_run.eq(none | self._few(self.count < share.run, share.run)),
        ]
        m.d.sync += [
            self.wants.eq(self.used & (by_pace | by_run)),
            self.may.eq(
                Mux(
                    self.used,
                    first | (room & (by_pace | (by_run & (self.its_turn | ~waiting.o.valid)))),
                    none & (self.free > policy.idle),
                )
            ),
        ]
        return m

    def _few(self, less, limit):
        """Whether the source's lines, but for the one that has been asked for, are fewer than
        ``limit``; ``less``: all its lines are. Without a subtraction in front."""
        return less | (self.given & (self.count == limit))


class ShareMeter(wiring.Component):
    """Works out a source's share of the lines from when it is asked.

    In proportion: half of the lines, divided by the answers of all sources for one of this
    source's. Peers send several messages in a row, so that is an average, of about eight answers,
    and begins with a share of 32. A run is a row of answers to one source.

    Members: ``share``: of the source at hand; ``answers``: of all sources so far; ``after``:
    ``share`` after one more answer, 2 cycles later. Reset: none, it keeps nothing.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__({"share": In(SourceShare), "answers": In(16), "after": Out(SourceShare)})

    def elaborate(self, platform):
        m = Module()
        policy, bits = PrefetchPolicy(self._config), ceil_log2(self._config.recv_lines)
        share = self.share
        gap, since = Signal(bits), Signal(16)
        kept, pace = Signal(15), Signal(15)
        m.d.comb += [since.eq(self.answers - share.stamp), self.after.share.eq(0)]
        m.d.sync += [
            gap.eq(Mux(since[bits:].any(), (1 << bits) - 1, since)),
            kept.eq(((share.pace << 3) - share.pace) >> 3),
            pace.eq(Mux(share.pace == 0, policy.first_pace, kept + gap)),
        ]
        for log in reversed(range(bits - 1)):
            with m.If(pace <= 8 << log):
                m.d.comb += self.after.share.eq(bits - 1 - log)

        # Runs: the longest one, which counts for less with every eighth one after it or so.
        burst, longest, near = Signal(4), Signal(4), Signal()
        m.d.sync += [
            near.eq(since < policy.NEAR),
            burst.eq(Mux(near, share.burst + ~share.burst.all(), 1)),
            longest.eq(share.run - (~near & share.run.any() & (self.answers[policy.FADE] == 0))),
        ]
        m.d.comb += [
            self.after.stamp.eq(self.answers),
            self.after.pace.eq(pace),
            self.after.burst.eq(burst),
            self.after.run.eq(Mux(burst > longest, burst, longest)),
        ]
        return m
