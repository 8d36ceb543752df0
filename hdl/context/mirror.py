"""The firmware's window on rows that are kept twice."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.tables import TableProgram

__all__ = ["ProgramMirror"]


class ProgramMirror(wiring.Component):
    """Writes a row to ``second``, then to ``first``; reads it from ``first``.

    ``program`` as in TableProgram; ``done`` comes when both tables have the row. Reset: idle.
    """

    def __init__(self, *, row, index_width: int):
        super().__init__(
            {
                "program": In(TableProgram(index_width, row)),
                "first": Out(TableProgram(index_width, row)),
                "second": Out(TableProgram(index_width, row)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        copied = Signal()  # ``second`` has the row
        for port in (self.first, self.second):
            m.d.comb += [port.index.eq(self.program.index), port.row.eq(self.program.row)]
        m.d.comb += [
            self.second.write.eq(self.program.write & ~copied),
            self.first.write.eq(self.program.write & copied),
            self.first.read.eq(self.program.read),
            self.program.done.eq(self.first.done),
            self.program.read_row.eq(self.first.read_row),
        ]
        with m.If(self.second.write & self.second.done):
            m.d.sync += copied.eq(1)
        with m.If(self.first.write & self.first.done):
            m.d.sync += copied.eq(0)
        return m
