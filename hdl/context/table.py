"""One context table: rows in RAM with one owner, reading copies, and the firmware's window."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.common.tables import TableProgram, TableRead, TableWrite

from .parity import RowParity

__all__ = ["Table"]


class Table(wiring.Component):
    """Rows of ``row``, ``depth`` of them: ``read0``.. for readers, the first for the owner, as is
    ``write`` (when ``owned``), ``program`` for the firmware. ``kept``: bits of the row that can
    be set; the others stay 0.

    Index ports are ``index_width`` bits; bits beyond the depth are ignored, so a caller that serves
    untrusted numbers checks them first. Reads take 1 cycle and never wait. The owner's write takes
    effect at once; the firmware's write waits for a cycle in which the owner does not write, so
    that a live row changes in one step. A read in the cycle of a write returns the row as it was
    before. Readers are told of the write in a later cycle, so they cannot see a difference. The
    owner uses no row that it reads in the cycle in which it writes it. After reset the rows are
    cleared, one in each cycle; ``ready`` says when this is done.
    With ``parity``, ``bad`` Out: a row that was read has a wrong bit (``RowParity``). ``spoil`` In:
    the firmware's writes store a wrong bit 0, so that it can be tried.
    """

    def __init__(
        self,
        *,
        row,
        depth: int,
        index_width: int,
        reads: int = 1,
        owned: bool = True,
        kept: int = -1,
        parity: bool = False,
    ):
        if depth > 1 << index_width:
            raise ValueError(f"Depth must fit {index_width} index bits, not {depth!r} rows")
        self._row, self._depth, self._reads, self._owned = row, depth, reads, owned
        self._kept = kept & ((1 << Shape.cast(row).width) - 1)
        self._parity = parity
        members = {f"read{i}": In(TableRead(index_width, row)) for i in range(reads)}
        if owned:
            members["write"] = In(TableWrite(index_width, row))
        members["program"] = In(TableProgram(index_width, row))
        members["ready"] = Out(1)
        if parity:
            members |= {"bad": Out(1), "spoil": In(1)}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        # A reader may read a row a cycle before its write or a cycle after it, and is told of the
        # write later. It could not tell whether a row was forwarded, which would cost a comparison
        # in front of the RAM and a multiplexer as wide as the row behind it.
        reads = self._reads + 1
        m.submodules.rows = rows = Ram(
            shape=self._row, depth=self._depth, reads=reads, earlier=range(reads)
        )
        index = max(1, ceil_log2(self._depth))
        for i in range(self._reads):
            port, copy = getattr(self, f"read{i}"), getattr(rows, f"read{i}")
            m.d.comb += [
                copy.index.eq(port.index[:index]),
                copy.enable.eq(port.enable),
                port.row.eq(copy.row),
            ]

        firmware = getattr(rows, f"read{self._reads}")
        read_done, write_done, writing = Signal(), Signal(), Signal()
        m.d.comb += [
            firmware.index.eq(self.program.index[:index]),
            firmware.enable.eq(self.program.read),
            self.program.read_row.eq(firmware.row),
        ]
        m.d.sync += [read_done.eq(self.program.read & ~read_done), write_done.eq(writing)]

        clear = Signal(range(self._depth + 1))
        m.d.comb += self.ready.eq(clear == self._depth)
        with m.If(~self.ready):
            m.d.comb += [rows.write.index.eq(clear), rows.write.enable.eq(1)]
            m.d.sync += clear.eq(clear + 1)
        if self._owned:
            with m.Elif(self.write.enable):
                m.d.comb += [
                    rows.write.index.eq(self.write.index[:index]),
                    Value.cast(rows.write.row).eq(Value.cast(self.write.row) & self._kept),
                    rows.write.enable.eq(1),
                ]
        with m.Elif(self.program.write & ~write_done):
            m.d.comb += [
                writing.eq(1),
                rows.write.index.eq(self.program.index[:index]),
                Value.cast(rows.write.row).eq(Value.cast(self.program.row) & self._kept),
                rows.write.enable.eq(1),
            ]
        m.d.comb += self.program.done.eq(read_done | write_done)
        self._contract(m, platform)
        if self._parity:
            self._check(m, rows, writing)
        return m

    def _contract(self, m: Module, platform) -> None:
        program = self.program
        require(m, platform, ~(program.read & program.write), "the firmware reads or writes a row")
        if self._owned:
            writes = self.write.enable
            require(m, platform, self.ready | ~writes, "no row is written before it is cleared")

    def _check(self, m: Module, rows: Ram, writing: Signal) -> None:
        """The parity of each row that is written and read, and a wrong bit to try it."""
        width, reads = Shape.cast(self._row).width, self._reads + 1
        m.submodules.parity = parity = RowParity(width=width, depth=self._depth, reads=reads)
        spoils = writing & self.spoil
        row = Value.cast(rows.write.row)
        m.d.comb += [
            parity.write.index.eq(rows.write.index),
            parity.write.enable.eq(rows.write.enable),
            parity.write.row.eq(row ^ spoils),
            parity.ready.eq(self.ready),
            self.bad.eq(parity.bad),
        ]
        with m.If(spoils):
            m.d.comb += row[0].eq(~Value.cast(self.program.row)[0])
        for i in range(reads):
            port = getattr(rows, f"read{i}")
            m.d.comb += [
                getattr(parity, f"enable{i}").eq(port.enable),
                getattr(parity, f"index{i}").eq(port.index),
                getattr(parity, f"row{i}").eq(port.row),
            ]
