"""The cache itself: the rows of a few QPs, the tags that say whose, and the way of a record."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, Signature, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.common.tables import TableProgram, TableWrite
from hdl.ports.context import BackingPort

from .places import Places
from .record import RecordIn, RecordOut
from .window import Window

__all__ = ["CacheRead", "CachedTable", "RowCache"]

#: Cycles in a row in which an owner may write: what is filled waits for the next one.
MOST_WRITES = 2


@dataclass(frozen=True)
class CachedTable:
    """A table of the cache: its row, whether somebody but the firmware writes it, and the bits of
    the row that can be set."""

    row: Any
    owned: bool = True
    kept: int = -1


class CacheRead(Signature):
    """A machine's look, seen from the machine: as ``ContextRead``. ``asks``, ``looks``: what is
    read in this cycle, for rows that lie elsewhere."""

    def __init__(self, bits: int, rows: data.StructLayout):
        super().__init__(
            {
                "number": Out(bits),
                "enable": Out(1),
                "asks": In(bits),
                "looks": In(1),
                "valid": In(1),
                "rows": In(rows),
            }
        )


class RowCache(wiring.Component):
    """Holds the rows of ``places`` QPs, and gets those of others from the backing store.

    Each table's rows lie in RAM by their place, a copy for each machine that reads the table and
    one more, by which a place's rows leave and the firmware reads. A machine that asks for a QP
    whose rows are not here waits, and nobody with it: requests for others are answered meanwhile.
    What ``Places`` pins stays: the QP that each machine has asked for last, of those ``behind`` the
    one before, those of ``pins``, and that of the firmware's window while it is used.

    Parameters: ``qps``, ``places``; ``width``: bits of a beat of a record; ``machines``: tables
    of which each of them gets a row.
    Members: ``<machine>`` (``CacheRead``), ``<table>_write`` (``TableWrite``), ``<table>``
    (``TableProgram``), ``<name>_pin``; ``store``: the backing store. ``missed``: a look finds that
    its rows are not here, counted once; ``lost``: a record could not be read: the QP's rows are
    zeros, as after a reset. ``ready``: looks are answered.
    Latency: 2 cycles if the rows are here. A miss takes 11 cycles, one for each beat of the record,
    and those from the store's taking the request to its first beat; 10 without the store if it has
    no record of the QP. Rows that leave cost one more, and the next miss waits until they are
    handed over, in 2 cycles a beat. Throughput: a look in 2 cycles for each machine.
    Who waits for whom: a fill waits for the backing store, and for a cycle in which a table's owner
    does not write; an owner writes in no more than ``MOST_WRITES`` cycles in a row. The firmware
    waits for fills and owners. Owners never wait.
    Errors: ``lost``. Reset: all rows are zeros.
    """

    def __init__(
        self,
        *,
        qps: int,
        places: int,
        width: int,
        tables: Mapping[str, CachedTable],
        machines: Mapping[str, tuple[str, ...]],
        behind: Collection[str] = (),
        pins: Collection[str] = (),
    ):
        self._qps, self._places, self._width = qps, places, width
        self._tables, self._machines = dict(tables), dict(machines)
        self._behind, self._pins = tuple(behind), tuple(pins)
        self._bits = bits = max(1, ceil_log2(qps))
        members = {}
        for machine, names in self._machines.items():
            rows = {name: self._tables[name].row for name in names}
            members[machine] = In(CacheRead(bits, data.StructLayout(rows)))
        for name, table in self._tables.items():
            if table.owned:
                members[f"{name}_write"] = In(TableWrite(bits, table.row))
            members[name] = In(TableProgram(bits, table.row))
        for name in self._pins:
            members[f"{name}_pin"] = In(Signature({"number": Out(bits), "held": Out(1)}))
        super().__init__(
            members
            | {"store": Out(BackingPort(width)), "missed": Out(1), "lost": Out(1), "ready": Out(1)}
        )

    @property
    def record(self) -> data.StructLayout:
        """The rows of a QP as they lie in its record."""
        return data.StructLayout({name: one.row for name, one in self._tables.items()})

    def elaborate(self, platform):
        m = Module()
        owned = [name for name, table in self._tables.items() if table.owned]
        m.submodules.places = places = Places(
            qps=self._qps,
            places=self._places,
            looks=(*self._machines, "window"),
            behind=self._behind,
            pins=self._pins,
            owners=owned,
        )
        bits = Shape.cast(self.record).width
        m.submodules.inward = inward = RecordIn(
            bits=bits, width=self._width, places=self._places, tables=len(self._tables)
        )
        m.submodules.outward = outward = RecordOut(bits=bits, width=self._width)
        m.submodules.window = window = Window(bits=self._bits, tables=tuple(self._tables))
        for name in self._pins:
            connect(m, flipped(getattr(self, f"{name}_pin")), getattr(places, f"pin_{name}"))
        rows = self._rows(m)
        self._reads(m, places, window, outward, rows)
        self._writes(m, platform, places, window, inward, rows)
        connect(m, places.request, flipped(self.store.request))
        connect(m, outward.o, flipped(self.store.record))
        connect(m, flipped(self.store.answer), inward.i)
        connect(m, places.fill, inward.fill)
        connect(m, places.clear, inward.clear)
        m.d.comb += [
            outward.start.eq(
                places.request.valid & places.request.ready & places.request.payload.write
            ),
            places.gone.eq(outward.done),
            places.filled.eq(inward.done),
            places.filled_at.eq(inward.place),
            places.lost.eq(inward.lost),
            self.missed.eq(places.missed),
            self.lost.eq(inward.lost),
            self.ready.eq(places.ready),
        ]
        return m

    def _rows(self, m: Module) -> dict[str, Ram]:
        rows = {}
        for name, table in self._tables.items():
            reads = sum(name in names for names in self._machines.values()) + 1
            rows[name] = ram = Ram(
                shape=table.row, depth=self._places, reads=reads, earlier=range(reads)
            )
            m.submodules[name] = ram
        return rows

    def _reads(self, m: Module, places, window, outward, rows) -> None:
        """Each machine's copies, and the one by which rows leave and the firmware reads."""
        used = dict.fromkeys(rows, 0)
        for machine, names in self._machines.items():
            port, look = getattr(self, machine), getattr(places, f"look_{machine}")
            m.d.comb += [
                look.number.eq(port.number),
                look.enable.eq(port.enable),
                port.asks.eq(look.asks),
                port.looks.eq(look.looks),
                port.valid.eq(look.valid),
            ]
            for name in names:
                read = getattr(rows[name], f"read{used[name]}")
                used[name] += 1
                m.d.comb += [
                    read.index.eq(look.at),
                    read.enable.eq(look.looks),
                    port.rows[name].eq(read.row),
                ]
        look = places.look_window
        at = Signal(range(self._places))
        m.d.comb += [
            look.number.eq(window.number),
            look.enable.eq(window.enable),
            look.drop.eq(window.drop),
            window.here.eq(look.valid),
            # Rows that leave stay in the RAM's output until they have been handed over.
            window.may_read.eq(~places.holds),
            at.eq(Mux(places.leave, places.leaving, look.at)),
        ]
        record = Signal(self.record)
        m.d.comb += outward.record.eq(record)
        for name, ram in rows.items():
            read, program = getattr(ram, f"read{used[name]}"), getattr(self, name)
            served = getattr(window, name)
            m.d.comb += [
                read.index.eq(at),
                read.enable.eq(places.leave | window.read),
                record[name].eq(read.row),
                program.read_row.eq(read.row),
                program.done.eq(served.done),
                served.index.eq(program.index),
                served.read.eq(program.read),
                served.write.eq(program.write),
            ]

    def _writes(self, m: Module, platform, places, window, inward, rows) -> None:
        """The owner's write, else a part of a record that comes, else the firmware's."""
        new = Signal(self.record)
        m.d.comb += new.eq(inward.record)
        look, soils = places.look_window, []
        for n, (name, ram) in enumerate(rows.items()):
            table, row = self._tables[name], Value.cast(ram.write.row)
            kept = table.kept & ((1 << len(row)) - 1)
            writes = Signal(name=f"{name}_writes")
            if table.owned:
                mine, owner = getattr(self, f"{name}_write"), getattr(places, f"owner_{name}")
                m.d.comb += [
                    writes.eq(mine.enable),
                    owner.number.eq(mine.index),
                    owner.enable.eq(mine.enable),
                ]
                self._pauses(m, platform, name, mine.enable)
            fills = inward.left[n]
            told, programmed = getattr(self, name), Signal(name=f"{name}_programmed")
            m.d.comb += [
                inward.taken[n].eq(fills & ~writes),
                programmed.eq(window.writes[n] & ~writes & ~fills),
                window.written[n].eq(programmed),
                ram.write.enable.eq(writes | fills | programmed),
                ram.write.index.eq(look.at),
                row.eq(Value.cast(told.row) & kept),
            ]
            with m.If(fills):
                m.d.comb += [
                    ram.write.index.eq(inward.place),
                    row.eq(Value.cast(new[name]) & kept & ~inward.zeros.replicate(len(row))),
                ]
            if table.owned:
                with m.If(writes):
                    m.d.comb += [
                        ram.write.index.eq(owner.at),
                        row.eq(Value.cast(mine.row) & kept),
                    ]
            soils.append(programmed)
        soiled = Cat(soils).any()
        m.d.comb += places.soil.eq(look.hits & soiled.replicate(self._places))

    @staticmethod
    def _pauses(m: Module, platform, name: str, writes: Value) -> None:
        """What is filled gets its turn."""
        before = Signal(MOST_WRITES, name=f"{name}_before")
        m.d.sync += before.eq(Cat(writes, before))
        require(m, platform, ~(writes & before.all()), f"{name}: its owner pauses")
