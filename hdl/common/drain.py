"""Tells when everything admitted before a moment has finished."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .contract import require

__all__ = ["Drain"]


class Drain(wiring.Component):
    """Counts jobs in two epochs: ``start`` opens a new one and waits until the old one is empty.

    Members: ``enter`` a job is admitted now, in the epoch ``epoch``, which it keeps; ``leave0`` and
    ``leave1`` with ``epoch0`` and ``epoch1``: a job of that epoch is finished (both may come in one
    cycle); ``start`` pulse, ignored while not ``done``; ``done`` low from the cycle after ``start``
    until all jobs admitted before it (or with it) have finished: 3 cycles after the last, or after
    ``start``, at the earliest. ``jobs`` at most 255 per epoch.
    Later jobs do not delay it. Reset: empty and done.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "done": Out(1, init=1),
                "enter": In(1),
                "epoch": Out(1),
                "leave0": In(1),
                "epoch0": In(1),
                "leave1": In(1),
                "epoch1": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        counts = [Signal(9, name=f"count{n}") for n in range(2)]
        for n in range(2):
            entered = self.enter & (self.epoch == n)
            left0 = self.leave0 & (self.epoch0 == n)
            left1 = self.leave1 & (self.epoch1 == n)
            # Counted a cycle later, because the users' signals settle late in the cycle.
            up, down0, down1 = (Signal(name=f"{name}{n}") for name in ("up", "down0_", "down1_"))
            m.d.sync += [up.eq(entered), down0.eq(left0), down1.eq(left1)]
            m.d.sync += counts[n].eq(counts[n] + up - down0 - down1)
            text = "no more jobs leave an epoch than have entered it, nor are more than 255 in it"
            require(m, platform, ~counts[n][-1], text)
        opening = Signal()  # a job that came with ``start`` is not counted yet
        m.d.sync += opening.eq(0)
        with m.If(self.done):
            with m.If(self.start):
                m.d.sync += [self.done.eq(0), self.epoch.eq(~self.epoch), opening.eq(1)]
        with m.Elif(~opening & (Mux(self.epoch, counts[0], counts[1]) == 0)):
            m.d.sync += self.done.eq(1)
        return m
