"""The firmware's view of one row of a context table."""

from amaranth.hdl import Cat, Const, Module, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.ports.tables import TableProgram

from .block import BlockBus, CsrBlock
from .blocks import TABLES, row_layout, table_window

__all__ = ["TableWindow"]


class TableWindow(wiring.Component):
    """Shadow of one row of table ``table``: read a row into it, change words, commit it back.

    Members: ``bus``; ``program`` (``TableProgram``): ``read`` or ``write`` is held with ``index``
    and ``row`` until ``done``. The row changes in one cycle, whatever its width.
    Latency: a command takes as long as the table needs, usually 2 cycles; ``status.busy``
    meanwhile, and further commands and writes of the row are ignored.
    Errors: an index beyond the table sets ``status.error`` and does nothing else; a read of such a
    row leaves the shadow as it is. Reset: index and shadow are 0.
    """

    def __init__(self, *, table: str, config: NicConfig):
        if table not in TABLES:
            raise ValueError(f"Table must be one of {', '.join(TABLES)}, not {table!r}")
        self._table, self._config = table, config
        self._row = row_layout(table)
        index_width = TABLES[table].index_width
        super().__init__(
            {"bus": In(BlockBus()), "program": Out(TableProgram(index_width, self._row))}
        )

    def elaborate(self, platform):
        m = Module()
        description = table_window(self._table, self._config)
        m.submodules.registers = registers = CsrBlock(block=description)
        entries = TABLES[self._table].entries(self._config)
        width = Shape.cast(self._row).width
        words = -(-width // 32)
        shadow = Signal(width)
        padded = Cat(shadow, Const(0, 32 * words - width))
        index = Signal(TABLES[self._table].index_width)
        reading, writing, error = Signal(), Signal(), Signal()
        busy = reading | writing
        program, row = self.program, registers.row

        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        m.d.comb += [
            program.index.eq(index),
            program.row.eq(shadow),
            program.read.eq(reading),
            program.write.eq(writing),
            registers.status_busy.eq(busy | registers.command_read | registers.command_commit),
            registers.status_error.eq(error),
        ]

        with m.If(row.enable), m.Switch(row.index):
            for word in range(words):
                with m.Case(word):
                    m.d.sync += row.read_data.eq(padded[32 * word : 32 * word + 32])
                    with m.If(row.write & ~busy):
                        part = shadow[32 * word : 32 * word + 32]
                        m.d.sync += part.eq(row.data)

        with m.If(busy), m.If(program.done):
            m.d.sync += [reading.eq(0), writing.eq(0)]
            with m.If(reading):
                m.d.sync += shadow.eq(program.read_row)
        with m.Elif(registers.command_read | registers.command_commit):
            m.d.sync += [
                index.eq(registers.index),
                error.eq(registers.index >= entries),
                reading.eq(registers.command_read & (registers.index < entries)),
                writing.eq(
                    registers.command_commit & ~registers.command_read & (registers.index < entries)
                ),
            ]
        return m
