"""Picks one row of the GID table."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.delay import delayed
from hdl.ports.headers import GidRow

__all__ = ["GidSelect"]

GROUP = 8


class GidSelect(wiring.Component):
    """``row`` of ``gids`` at ``index``; an index beyond the table gives an invalid row of zeros.

    Latency: 3 cycles (one of 8 rows, then one of the groups). Throughput: one per cycle.
    Reset: none needed.
    """

    def __init__(self, *, rows: int):
        if not 1 <= rows <= 256:
            raise ValueError(f"Rows must be 1 to 256, not {rows!r}")
        self._rows = rows
        super().__init__(
            {
                "gids": In(data.ArrayLayout(GidRow, rows)),
                "index": In(8),
                "row": Out(GidRow),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(GidRow).width
        index1 = delayed(m, self.index, 1, name="index")
        index2 = delayed(m, index1, 1, name="index_late")
        groups = []
        for first in range(0, self._rows, GROUP):
            group = Signal(width, name=f"group{first // GROUP}", reset_less=True)
            chosen = Signal(width, name=f"chosen{first // GROUP}")
            with m.Switch(index1[:3]):
                for row in range(first, min(first + GROUP, self._rows)):
                    with m.Case(row - first):
                        m.d.comb += chosen.eq(Value.cast(self.gids[row]))
            m.d.sync += group.eq(chosen)
            groups.append(group)
        row = Signal(width)
        with m.Switch(index2[3:]):
            for number, group in enumerate(groups):
                with m.Case(number):
                    m.d.comb += row.eq(group)
        m.d.sync += Value.cast(self.row).eq(row)
        return m
