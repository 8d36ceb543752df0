"""The GID table: in registers, because ingress matches a destination against all rows at once."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.ports.headers import GidRow
from hdl.ports.tables import TableProgram

__all__ = ["GidTable"]


class GidTable(wiring.Component):
    """``config.gids`` rows, all visible on ``rows``; written by the firmware through ``program``.

    Latency: a write is visible in the next cycle. Indices beyond the table are ignored and read as
    0. Reset: every row invalid.
    """

    def __init__(self, *, config: NicConfig):
        self._gids = config.gids
        super().__init__(
            {
                "program": In(TableProgram(8, GidRow)),
                "rows": Out(data.ArrayLayout(GidRow, config.gids)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for i in range(self._gids):
            with m.If(self.program.index == i):
                m.d.comb += self.program.read_row.eq(self.rows[i])
                with m.If(self.program.write):
                    m.d.sync += self.rows[i].eq(self.program.row)
        m.d.comb += self.program.done.eq(self.program.read | self.program.write)
        return m
