"""Matches a destination GID against the GID table."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.delay import delayed
from hdl.ports.headers import GidRow

__all__ = ["AddressMatch"]


class AddressMatch(wiring.Component):
    """Compares ``gid`` with all rows at once; the lowest valid row that is equal wins.

    Spec: virtio-rdma VR-3.33 (a destination must be in the table). The VLAN of a row is not
    compared: it says how to send.
    Members: ``gids`` the table, ``gid``; ``hit``, ``index`` and ``function`` of the row.
    Latency: ``LATENCY`` cycles. Throughput: one per cycle. Reset: none needed.
    """

    LATENCY = 3

    def __init__(self, *, rows: int):
        if not 1 <= rows <= 256:
            raise ValueError(f"Rows must be 1 to 256, not {rows!r}")
        self._rows = rows
        super().__init__(
            {
                "gids": In(data.ArrayLayout(GidRow, rows)),
                "gid": In(128),
                "hit": Out(1),
                "index": Out(8),
                "function": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        equal = Signal(self._rows, reset_less=True)
        lowest = Signal(self._rows, reset_less=True)
        rows = [self.gids[row] for row in range(self._rows)]
        m.d.sync += [
            equal.eq(Cat(row.valid & (row.gid == self.gid) for row in rows)),
            lowest.eq(equal & (~equal + 1)),
            self.hit.eq(lowest.any()),
            self.index.eq(self._any_of(lowest, list(range(self._rows)), 8)),
            self.function.eq(
                self._any_of(
                    lowest,
                    [
                        delayed(m, row.function, 1, name=f"function{n}")
                        for n, row in enumerate(rows)
                    ],
                    8,
                )
            ),
        ]
        return m

    def _any_of(self, one_hot, values, width: int):
        """The value of the one row that is set."""
        bits = []
        for bit in range(width):
            picked = [
                one_hot[n] if isinstance(value, int) else one_hot[n] & value[bit]
                for n, value in enumerate(values)
                if not isinstance(value, int) or value >> bit & 1
            ]
            bits.append(Cat(picked).any())
        return Cat(bits)
