"""Carries out the commands of the table windows."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.tables import TableProgram
from hdl.config import NicConfig

from .blocks import TABLES, row_layout, table_window
from .row_register import LANE_BITS, LANES, ROW_WORDS, RowRegister

__all__ = ["PLACE_BITS", "TABLE_BITS", "RowMover", "WindowCommand"]

#: Bits of a table's number; the last number belongs to no table.
TABLE_BITS = ceil_log2(len(TABLES) + 1)
#: Bits of a word's place in its page, as far as anything is there.
PLACE_BITS = 5


class WindowCommand(data.Struct):
    """A command that the firmware has given."""

    table: TABLE_BITS  # which of TABLES
    read: 1  # or commit
    index: max(info.index_width for info in TABLES.values())


class RowMover(wiring.Component):
    """Takes rows from their tables into the RAM of shadows and back, one command at a time.

    Members: ``commands``, taken when they are done; ``outside`` with a command that is refused,
    because its index is beyond the table. ``address`` of a word in the RAM (page and place): a
    cycle later ``i`` is due or, with ``store``, ``o`` is to be written there. ``wait``: the RAM
    serves another user in this cycle. ``ready``: after reset, ``address`` has passed each word;
    ``wait`` must be 0 before. ``<table>``, each table's ``TableProgram``: its row is valid at once.
    Latency: 18 cycles for a command, one more for each ``wait``, and what the table needs.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "commands": In(stream.Signature(WindowCommand)),
                "outside": Out(1),
                "address": Out(TABLE_BITS + PLACE_BITS),
                "wait": In(1),
                "i": In(32),
                "o": Out(32),
                "store": Out(1),
                "ready": Out(1),
            }
            | {
                name: Out(TableProgram(info.index_width, row_layout(name)))
                for name, info in TABLES.items()
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.row = row = RowRegister()
        command = self.commands.payload
        reading, writing = Signal(len(TABLES)), Signal(len(TABLES))
        for n, name in enumerate(TABLES):
            program = getattr(self, name)
            m.d.comb += [
                program.index.eq(command.index),
                program.read.eq(reading[n]),
                program.write.eq(writing[n]),
                program.row.eq(getattr(row, f"{name}_row")),
                getattr(row, f"{name}_read").eq(program.read_row),
            ]
        # In a register, because ``done`` of the tables settles late.
        dones = Signal(len(TABLES))
        for n, name in enumerate(TABLES):
            done = getattr(self, name).done
            m.d.sync += dones[n].eq(done)
            with m.If(done):
                m.d.sync += [reading[n].eq(0), writing[n].eq(0)]
        ended = dones.any()

        # Facts that follow from the table's number. The register's first word belongs at ``first``.
        entries, first, lane = Signal(32), Signal(PLACE_BITS), Signal(LANE_BITS)
        with m.Switch(command.table):
            for n, (name, info) in enumerate(TABLES.items()):
                own_lane = next(number for number, tables in LANES.items() if name in tables)
                place = table_window(name, self._config).offset("row") // 4
                with m.Case(n):
                    m.d.comb += [
                        entries.eq(info.entries(self._config)),
                        first.eq(place - LANES[own_lane][name]),
                        lane.eq(own_lane),
                    ]

        place, cleared = Signal(PLACE_BITS), Signal(TABLE_BITS)
        left = Signal(range(ROW_WORDS))
        step, stepped, storing = Signal(), Signal(), Signal()
        m.d.sync += stepped.eq(step)
        m.d.comb += [
            self.address.eq(Cat(place, Mux(self.ready, command.table, cleared))),
            row.i.eq(self.i),
            row.enable.eq(stepped),
            self.o.eq(row.o),
            self.store.eq(stepped & storing),
        ]
        with m.If(step):
            m.d.sync += [place.eq(place + 1), left.eq(left - 1)]
        with m.FSM(name="mover"):
            with m.State("CLEAR"):
                # CLEAR: clears one word after the other; ends with the last one.
                m.d.sync += Cat(place, cleared).eq(Cat(place, cleared) + 1)
                with m.If(Cat(place, cleared).all()):
                    m.d.sync += self.ready.eq(1)
                    m.next = "IDLE"
            with m.State("IDLE"):
                # IDLE: waits for a command; ends when it reads or writes a row of the table.
                m.d.sync += [place.eq(first), left.eq(ROW_WORDS - 1)]
                m.d.comb += self.outside.eq(command.index >= entries)
                with m.If(self.commands.valid):
                    with m.If(self.outside):
                        m.d.comb += self.commands.ready.eq(1)
                    with m.Elif(command.read):
                        m.d.sync += reading.bit_select(command.table, 1).eq(1)
                        m.d.sync += row.lane.eq(lane)
                        m.next = "READ"
                    with m.Else():
                        m.next = "MOVE"
            with m.State("READ"):
                # READ: loads the row; ends with its last word.
                m.d.comb += row.enable.eq(~ended)
                with m.If(ended):
                    m.d.sync += [row.lane.eq(0), storing.eq(1)]
                    m.next = "MOVE"
            with m.State("MOVE"):
                # MOVE: moves all words of the register, however long the row is; ends with them.
                m.d.comb += step.eq(~self.wait)
                with m.If(step & (left == 0)):
                    m.next = "LAST"
            with m.State("LAST"):
                # LAST: the last word is on the way; ends with the command, or goes on to write.
                m.d.sync += storing.eq(0)
                with m.If(storing):
                    m.d.comb += self.commands.ready.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += writing.bit_select(command.table, 1).eq(1)
                    m.next = "WRITE"
            with m.State("WRITE"):
                # WRITE: writes the row; ends when the table has it, with the command.
                with m.If(ended):
                    m.d.comb += self.commands.ready.eq(1)
                    m.next = "IDLE"
        return m
