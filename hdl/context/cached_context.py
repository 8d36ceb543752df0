"""The context of the queue pairs as a cache of a few hot rows over a backing store."""

from amaranth.hdl import Cat, Module, Shape
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.context import (
    LOOKING_BACK,
    QP_MACHINES,
    QP_PINS,
    QP_TABLES,
    BackingPort,
    ContextBackEnd,
    readers,
)
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import kept_bits

from .cached.rows import CachedTable, RowCache
from .table import Table

__all__ = ["CACHED_TABLES", "RESIDENT", "CachedContext", "record_layout"]

#: Tables whose rows are all on chip. ``Departures`` cannot hold egress up while a row comes.
RESIDENT = ("qp_sent",)
#: Those of which only hot rows are.
CACHED_TABLES = tuple(name for name in QP_TABLES if name not in RESIDENT)


def record_layout() -> data.StructLayout:
    """Return the rows of a QP as they lie in its record, bit 0 first."""
    return data.StructLayout({name: QP_TABLES[name].row for name in CACHED_TABLES})


class CachedContext(wiring.Component):
    """The rows of ``config.hot_qps`` QPs on chip, and those of all QPs in a backing store.

    It keeps the rules of ``ContextRead``; see docs/context.md for who pins what.
    Parameters: ``width``: bits of a beat of a record; ``places``: hot QPs, if not as the
    configuration says. Members: see ``ContextBackEnd``, with pins; ``store``: the backing store;
    ``missed``, ``lost``: see ``RowCache``. Latency: of ``departures`` 1 cycle, always, as all of
    its rows are on chip; of the others see ``RowCache``. Reset: all rows are zeros.
    """

    def __init__(self, *, config: NicConfig, places: int | None = None):
        self._config, self._places = config, places or config.hot_qps
        super().__init__(
            dict(ContextBackEnd(pins=True).flip().members.items())
            | {"store": Out(BackingPort(config.width)), "missed": Out(1), "lost": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        config, index_width = self._config, Shape.cast(QpNumber).width
        cached = {
            machine: tuple(name for name in names if name in CACHED_TABLES)
            for machine, names in QP_MACHINES.items()
        }
        kept = kept_bits(config)
        m.submodules.rows = rows = RowCache(
            qps=config.qps,
            places=self._places,
            width=config.width,
            tables={
                name: CachedTable(
                    QP_TABLES[name].row, QP_TABLES[name].owner is not None, kept.get(name, -1)
                )
                for name in CACHED_TABLES
            },
            machines={machine: names for machine, names in cached.items() if names},
            behind=LOOKING_BACK,
            pins=QP_PINS,
        )
        resident = {}
        for name in RESIDENT:
            m.submodules[name] = resident[name] = Table(
                row=QP_TABLES[name].row,
                depth=config.qps,
                index_width=index_width,
                reads=len(readers(name)),
            )
        connect(m, rows.store, flipped(self.store))
        m.d.comb += [self.missed.eq(rows.missed), self.lost.eq(rows.lost)]
        for machine, names in QP_MACHINES.items():
            port = getattr(self, machine)
            number, enable = port.number, port.enable
            m.d.comb += port.valid.eq(1)
            if cached[machine]:
                look = getattr(rows, machine)
                m.d.comb += [
                    look.number.eq(port.number),
                    look.enable.eq(port.enable),
                    port.valid.eq(look.valid),
                ]
                for name in cached[machine]:
                    m.d.comb += port.rows[name.removeprefix("qp_")].eq(look.rows[name])
                # What lies elsewhere is read in the same cycle, so the answer is of one moment.
                number, enable = look.asks, look.looks
            for name in names:
                if name in RESIDENT:
                    read = getattr(resident[name], f"read{readers(name).index(machine)}")
                    m.d.comb += [
                        read.index.eq(number),
                        read.enable.eq(enable),
                        port.rows[name.removeprefix("qp_")].eq(read.row),
                    ]
        for name, table in QP_TABLES.items():
            holder = resident.get(name)
            program = holder.program if holder else getattr(rows, name)
            _narrowed(m, getattr(self, name), program)
            if table.owner:
                write = holder.write if holder else getattr(rows, f"{name}_write")
                mine = getattr(self, f"{name}_write")
                m.d.comb += [
                    write.index.eq(mine.index),
                    write.enable.eq(mine.enable),
                    write.row.eq(mine.row),
                ]
        for name in QP_PINS:
            pin, mine = getattr(rows, f"{name}_pin"), getattr(self, f"{name}_pin")
            m.d.comb += [pin.number.eq(mine.number), pin.held.eq(mine.held)]
        m.d.comb += self.ready.eq(rows.ready & Cat(one.ready for one in resident.values()).all())
        return m


def _narrowed(m: Module, mine, inner) -> None:
    """A window of the firmware, with no more bits of an index than there are QPs."""
    m.d.comb += [
        inner.index.eq(mine.index),
        inner.row.eq(mine.row),
        inner.read.eq(mine.read),
        inner.write.eq(mine.write),
        mine.done.eq(inner.done),
        mine.read_row.eq(inner.read_row),
    ]
