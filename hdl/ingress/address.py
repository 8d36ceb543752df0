"""Matches a destination GID against the GID table."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.ports.headers import GidRow

__all__ = ["AddressMatch"]

PART = 64  # bits of a GID compared in one cycle's logic


def _same(one: Value, other: Value) -> Value:
    """Whether two values of equal width are equal. A look-up table compares three bits, and a
    carry chain joins them at no cost; a tree would take half as many tables more."""
    equal = Cat(one[at : at + 3] == other[at : at + 3] for at in range(0, len(one), 3))
    return (equal + 1)[len(equal)]


class AddressMatch(wiring.Component):
    """Compares ``gid`` with all rows at once; the lowest valid row that is equal wins.

    Spec: virtio-rdma VR-3.33 (a destination must be in the table). The VLAN of a row is not
    compared, because it only says how to send.
    Members: ``gids`` the table, ``gid``; ``hit``, ``index`` and ``function`` of the row.
    Latency: ``LATENCY`` cycles. Throughput: one per cycle. Reset: none needed.
    """

    LATENCY = 4

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
        rows = [self.gids[row] for row in range(self._rows)]
        equal = Signal(self._rows, reset_less=True)
        lowest = Signal(self._rows, reset_less=True)
        for n, row in enumerate(rows):
            parts = Signal(128 // PART, name=f"parts{n}", reset_less=True)
            m.d.sync += [
                parts.eq(
                    Cat(
                        _same(row.gid[at : at + PART], self.gid[at : at + PART])
                        for at in range(0, 128, PART)
                    )
                ),
                equal[n].eq(row.valid & parts.all()),
            ]
        m.d.sync += [
            lowest.eq(Cat(equal[n] & ~equal[:n].any() for n in range(self._rows))),
            self.hit.eq(lowest.any()),
            self.index.eq(self._any_of(lowest, list(range(self._rows)), 8)),
            self.function.eq(self._any_of(lowest, [row.function for row in rows], 8)),
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
