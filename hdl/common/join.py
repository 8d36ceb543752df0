"""Starts several parts at once and tells when all have finished."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Join"]


class Join(wiring.Component):
    """``start`` (held until ``done``, which lasts one cycle) for ``parts`` parts.

    Each part gets ``part_start`` (one cycle) and answers with its bit of ``part_done``, which is
    low from the cycle after the start until the part has finished. Reset: idle.
    """

    def __init__(self, *, parts: int):
        if parts < 1:
            raise ValueError(f"Parts must be at least 1, not {parts!r}")
        super().__init__(
            {"start": In(1), "done": Out(1), "part_start": Out(1), "part_done": In(parts)}
        )

    def elaborate(self, platform):
        m = Module()
        with m.FSM(name="join"):
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.comb += self.part_start.eq(1)
                    m.next = "STARTED"
            with m.State("STARTED"):
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self.part_done.all()):
                    m.d.comb += self.done.eq(1)
                    m.next = "DONE"
            with m.State("DONE"):
                m.next = "IDLE"  # the caller takes its start back
        return m
