"""A second reader of the lines of send WQEs, in cycles that the first one leaves free."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.ports.boxes import LinesPort, SpareLinesPort

__all__ = ["LineTap"]


class LineTap(wiring.Component):
    """Passes the reads of ``reader`` on, and in cycles without one those of ``spare``.

    What ``reader`` has read stays as if nobody else read: it is kept here meanwhile.
    Members: ``reader``, ``spare`` In; ``lines`` Out. Latency: none. Throughput: a read per cycle.
    Errors: none. Reset: nothing is kept.
    """

    def __init__(self):
        super().__init__(
            {"reader": In(LinesPort()), "spare": In(SpareLinesPort()), "lines": Out(LinesPort())}
        )

    def elaborate(self, platform):
        m = Module()
        reader, spare, lines = self.reader, self.spare, self.lines
        kept, other = Signal(128, reset_less=True), Signal()  # the lines show what is another's
        wants = Signal()
        # A register: whether the first one reads is known late.
        m.d.sync += spare.taken.eq(wants & ~reader.slot_enable)
        m.d.comb += [
            wants.eq(spare.slot_enable & ~spare.taken),
            lines.slot_enable.eq(reader.slot_enable | wants),
            lines.slot.eq(Mux(reader.slot_enable, reader.slot, spare.slot)),
            reader.slot_data.eq(Mux(other, kept, lines.slot_data)),
            spare.slot_data.eq(lines.slot_data),
        ]
        with m.If(reader.slot_enable):
            m.d.sync += other.eq(0)
        with m.Elif(wants):
            m.d.sync += other.eq(1)
        with m.If(~other):
            m.d.sync += kept.eq(lines.slot_data)
        return m
