"""Waits until everything that was begun before a moment has ended."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .contract import require

__all__ = ["Quiesce"]


class Quiesce(wiring.Component):
    """First each front turns to new work, then each part ends what the fronts have given it.

    A front reads an object's row and then works with it for a while, so its current work may still
    use the old row when the row changes. It sets ``turned`` in each cycle in which it rests or
    turns to new work, whose rows it reads then or later. After that the parts are started: each
    tells when everything that had been admitted before has finished.
    Members: ``start`` is held until ``done``, which lasts one cycle. ``turned`` a bit for each
    front; ``wanted`` likewise: it is waited for. Each part gets ``part_start`` (one cycle) and
    answers with its bit of ``part_done``, which is low from the cycle after the start until the
    part has finished. Reset: idle.
    """

    def __init__(self, *, fronts: int, parts: int):
        if fronts < 0:
            raise ValueError(f"Fronts must not be negative, not {fronts!r}")
        if parts < 1:
            raise ValueError(f"Parts must be at least 1, not {parts!r}")
        self._fronts = fronts
        members = {"start": In(1), "done": Out(1), "part_start": Out(1), "part_done": In(parts)}
        if fronts:
            members |= {"turned": In(fronts), "wanted": Out(fronts)}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        left = Signal(max(1, self._fronts))  # fronts that have not turned yet; none when idle
        turned = self.turned if self._fronts else 1
        if self._fronts:
            m.d.comb += self.wanted.eq(left)  # a register: much that is long begins with it
        with m.FSM(name="quiesce") as quiesce:
            with m.State("IDLE"):
                # IDLE: waits; ends with ``start``.
                with m.If(self.start):
                    m.d.sync += left.eq((1 << self._fronts) - 1)
                    m.next = "FRONTS"
            with m.State("FRONTS"):
                # FRONTS: waits until each front has turned to new work; ends by starting the parts.
                m.d.sync += left.eq(left & ~turned)
                with m.If(left == 0):
                    m.d.comb += self.part_start.eq(1)
                    m.next = "STARTED"
            with m.State("STARTED"):
                # STARTED: gives the parts a cycle to say that they are not done.
                m.next = "WAIT"
            with m.State("WAIT"):
                # WAIT: waits; ends with ``done`` when all parts are done.
                with m.If(self.part_done.all()):
                    m.d.comb += self.done.eq(1)
                    m.next = "DONE"
            with m.State("DONE"):
                # DONE: lets the caller withdraw its start; one cycle.
                m.next = "IDLE"
        rests = quiesce.ongoing("IDLE") | quiesce.ongoing("DONE")
        require(m, platform, rests | self.start, "the start is held until all is done")
        return m
