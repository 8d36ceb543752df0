"""The firmware's view of one row of each context table."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.tables import TableProgram
from hdl.config import NicConfig

from .block import INDEX_BITS, UNMAPPED, BlockBus
from .blocks import TABLES, row_bits, row_layout, table_window
from .describe import Block
from .row_mover import PLACE_BITS, TABLE_BITS, RowMover, WindowCommand

__all__ = ["TableWindows"]

#: Where each page has its registers, in words.
INDEX, COMMAND, STATUS = (
    table_window("qp_cfg", NicConfig()).offset(name) // 4 for name in ("index", "command", "status")
)


class Word(data.Struct):
    """A word of the pages, as it is without the firmware."""

    image: 32  # what reads there after reset
    kept: 32  # the bits that can be written


#: A word that does not exist.
NOTHING = {"image": UNMAPPED, "kept": 0}


class TableWindows(wiring.Component):
    """Shadow of one row of each table: read a row into it, change words, commit it back.

    Members: ``bus``, a page for each of ``TABLES`` in their order; ``ready``, before which the bus
    may not ask; a ``TableProgram`` named after each table: ``read`` or ``write`` is held with
    ``index`` and ``row`` until ``done``. The row changes in one cycle, whatever its width.

    All pages lie in one RAM of 32-bit words, their constants too, and one register as wide as the
    widest row takes a row from its table to the RAM or back (``RowMover``): a shadow in registers
    for each table would be 1,700 of them, with a multiplexer as wide.
    Latency: 20 cycles for a command, one more for each access of the bus, and what the table needs,
    usually 2; ``status.busy`` meanwhile, and further commands on that table and writes of its row
    are ignored. Commands on several tables are carried out one by one in the order given.
    Errors: an index beyond the table sets ``status.error`` and does nothing else; a read of such a
    row leaves the shadow as it is. Reset: index and shadow are 0, from ``ready`` on.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        self._pages = [table_window(name, config) for name in TABLES]
        super().__init__(
            {"bus": In(BlockBus(pages=len(TABLES))), "ready": Out(1)}
            | {
                name: Out(TableProgram(info.index_width, row_layout(name)))
                for name, info in TABLES.items()
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Only the response to a write, which says nothing, is read from what is being written.
        m.submodules.words = words = Ram(
            shape=32, depth=1 << TABLE_BITS + PLACE_BITS, forward=False
        )
        m.submodules.waiting = waiting = StreamFifo(shape=WindowCommand, depth=1 << TABLE_BITS)
        m.submodules.mover = mover = RowMover(config=self._config)
        wiring.connect(m, waiting.o, mover.commands)
        for name in TABLES:
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(mover, name))
        bus = self.bus
        place, table = bus.index[:PLACE_BITS], bus.index[INDEX_BITS:]
        beyond = bus.index[PLACE_BITS:INDEX_BITS].any()
        busy, error = Signal(len(TABLES)), Signal(len(TABLES))
        is_busy, is_error = busy.bit_select(table, 1), error.bit_select(table, 1)
        # Of the cycle before: the bus has asked (its request stays), a word is to be cleared.
        answering, clearing = Signal(), Signal()
        m.d.sync += [answering.eq(bus.enable), clearing.eq(~mover.ready)]

        # Read in the first cycle, written in the second: what the bus wants, or else the mover.
        address, target = Signal.like(mover.address), Signal.like(mover.address)
        m.d.sync += target.eq(address)
        with m.If(~bus.enable):
            m.d.comb += address.eq(mover.address)
        with m.Elif(beyond):
            m.d.comb += address.eq(~0)  # in the last page, which belongs to no table and is empty
        with m.Else():
            m.d.comb += address.eq(Cat(place, table))
        m.d.comb += words.read0.index.eq(address)
        with m.If(bus.enable & bus.write & (place == COMMAND)):
            m.d.comb += words.read0.index[:PLACE_BITS].eq(INDEX)  # which goes with the command
        layout = [word for page in self._pages for word in _layout(page)]
        layout += [NOTHING] * ((1 << len(address)) - len(layout))
        m.submodules.layout = rom = memory.Memory(shape=Word, depth=len(layout), init=layout)
        known = rom.read_port()
        image, kept = known.data.image, known.data.kept
        is_index, write = Signal(), Signal()
        m.d.comb += [
            known.addr.eq(address),
            is_index.eq(target[:PLACE_BITS] == INDEX),
            write.eq(Mux(answering, bus.write & (is_index | ~is_busy), mover.store & ~is_index)),
            words.read0.enable.eq(1),
            words.write.index.eq(target),
            words.write.row.eq(Mux(clearing, image, Mux(answering, bus.data, mover.o) & kept)),
            # Every word that can be written has a bit 0.
            words.write.enable.eq(clearing | (kept[0] & write)),
            mover.i.eq(words.read0.row),
            mover.wait.eq(bus.enable),
            self.ready.eq(mover.ready),
        ]

        # There is room for a command on each table.
        status = Signal(2)
        with m.If(place == STATUS):
            m.d.comb += status.eq(Cat(is_busy, is_error))
        m.d.sync += bus.read_data.eq(words.read0.row | status)  # the RAM's word is 0
        m.d.comb += [
            bus.wait.eq(answering),
            waiting.i.valid.eq(
                answering
                & bus.write
                & (bus.index[:INDEX_BITS] == COMMAND)
                & bus.data[:2].any()
                & ~is_busy
            ),
            waiting.i.payload.table.eq(table),
            waiting.i.payload.read.eq(bus.data[0]),
            waiting.i.payload.index.eq(words.read0.row),
        ]
        with m.If(mover.commands.ready):
            done = mover.commands.payload.table
            m.d.sync += busy.bit_select(done, 1).eq(0)
            m.d.sync += error.bit_select(done, 1).eq(mover.outside)
        with m.If(waiting.i.valid):
            m.d.sync += [is_busy.eq(1), is_error.eq(0)]
        return m


def _layout(page: Block) -> list[dict[str, int]]:
    """The words of a page."""
    words = [dict(NOTHING) for _ in range(1 << PLACE_BITS)]
    for register in page.registers:
        fields = (field.reset << field.low for field in register.fields)
        words[page.offset(register.name) // 4]["image"] = sum(fields)
    words[INDEX]["kept"] = page.register("index").field("value").mask
    (row,) = page.windows
    for n in range(row.words):
        missing = max(0, 32 * (n + 1) - row_bits(page.name))
        place = page.offset(row.name) // 4 + n
        words[place] = {"image": 0, "kept": UNMAPPED >> missing}
    return words
