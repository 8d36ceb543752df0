"""Parity of a table's rows, checked beside the table."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.ram import Ram
from hdl.common.tables import TableWrite

__all__ = ["GROUP", "RowParity"]

#: Bits of a row with one bit of parity: few levels of six-input tables behind a RAM.
GROUP = 18


def _parity(row: Value) -> Value:
    """A bit for each group, 1 if an odd number of its bits is set."""
    return Cat(row[at : at + GROUP].xor() for at in range(0, len(row), GROUP))


class RowParity(wiring.Component):
    """Keeps the parity of each row that is written, and compares it with each row that is read.

    All is done a cycle later than in the table, from registers, so a row has in the meantime the
    same parity as its reader has got, and nothing of the table waits for this.
    Parameters: ``width``: bits of a row; ``depth``, ``reads``: as of the table's ``Ram``, all of
    whose ports return a row as it was before a write in the same cycle.
    Members: ``write``: as the table's RAM gets it; ``enable0``.., ``index0``.. In: its reads;
    ``row0``.. In: what they have returned. ``bad`` Out: a row that was read does not have its
    parity. ``ready`` In: the table is in use.
    Latency: ``bad`` 3 cycles after a row. Throughput: as the table. Errors: an even number of wrong
    bits in one group of ``GROUP`` is not found. Reset: the rows are kept.
    """

    def __init__(self, *, width: int, depth: int, reads: int):
        self._width, self._depth, self._reads = width, depth, reads
        index = max(1, (depth - 1).bit_length())
        super().__init__(
            {"write": In(TableWrite(index, width)), "ready": In(1), "bad": Out(1)}
            | {f"enable{i}": In(1) for i in range(reads)}
            | {f"index{i}": In(index) for i in range(reads)}
            | {f"row{i}": In(width) for i in range(reads)}
        )

    def elaborate(self, platform):
        m = Module()
        groups = -(-self._width // GROUP)
        m.submodules.kept = kept = Ram(
            shape=groups, depth=self._depth, reads=self._reads, earlier=range(self._reads)
        )
        row = Signal(self._width, reset_less=True)
        m.d.sync += [
            row.eq(self.write.row),
            kept.write.index.eq(self.write.index),
            kept.write.enable.eq(self.write.enable),
        ]
        m.d.comb += kept.write.row.eq(_parity(row))
        wrong, half = Signal(2 * self._reads), groups // 2  # in two parts: the RAM is late
        for i in range(self._reads):
            read = getattr(kept, f"read{i}")
            checked = Signal(name=f"checked{i}")
            found = Signal(groups, name=f"found{i}", reset_less=True)
            m.d.sync += [
                read.enable.eq(getattr(self, f"enable{i}")),
                read.index.eq(getattr(self, f"index{i}")),
                checked.eq(read.enable),
                found.eq(_parity(getattr(self, f"row{i}"))),
                wrong[2 * i].eq(checked & (found[:half] != read.row[:half])),
                wrong[2 * i + 1].eq(checked & (found[half:] != read.row[half:])),
            ]
        m.d.sync += self.bad.eq(wrong.any() & self.ready)
        return m
