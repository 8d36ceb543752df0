"""The GID table: rows in RAM, and in registers the parts that a destination is compared with."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.tables import TableProgram, TableRead
from hdl.config import NicConfig
from hdl.ports.headers import GidRow

from .table import Table

__all__ = ["GidTable"]


class GidTable(wiring.Component):
    """``config.gids`` rows, written by the firmware through ``program``; all of them visible on
    ``rows`` for ingress, which compares with every one at once; ``read`` for egress.

    Latency: a read takes 1 cycle; ``rows`` and reads see a write from the next cycle on.
    Errors: an index of ``read`` beyond the table gives an invalid row. The firmware's window
    checks its own indices. Reset: every row invalid; ``ready`` when the RAM is cleared.
    """

    def __init__(self, *, config: NicConfig):
        self._gids = config.gids
        super().__init__(
            {
                "program": In(TableProgram(8, GidRow)),
                "read": In(TableRead(8, GidRow)),
                "rows": Out(data.ArrayLayout(GidRow, config.gids)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        table = Table(row=GidRow, depth=self._gids, index_width=8, owned=False)
        m.submodules.table = table
        wiring.connect(m, wiring.flipped(self.program), table.program)
        beyond = Signal()
        m.d.comb += [
            table.read0.index.eq(self.read.index),
            table.read0.enable.eq(self.read.enable),
            self.read.row.eq(table.read0.row),
            self.read.row.valid.eq(table.read0.row.valid & ~beyond),
            self.ready.eq(table.ready),
        ]
        with m.If(self.read.enable):
            m.d.sync += beyond.eq(self.read.index >= self._gids)
        for i in range(self._gids):
            with m.If(self.program.write & self.program.done & (self.program.index == i)):
                m.d.sync += self.rows[i].eq(self.program.row)
        return m
