"""The context of the queue pairs in RAM: every row of every QP is always there."""

from amaranth.hdl import Cat, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from hdl.config import NicConfig
from hdl.ports.context import QP_MACHINES, QP_TABLES, ContextBackEnd, readers
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import kept_bits

from .table import Table

__all__ = ["RamContext"]


class RamContext(wiring.Component):
    """A ``Table`` for each of ``QP_TABLES``, with a copy of the RAM for each machine that reads it.

    Members: see ``ContextBackEnd``. Latency: 1 cycle, always, so ``valid`` is constant.
    Throughput: a request a cycle and machine. Errors: none. Reset: rows are cleared one a cycle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(ContextBackEnd(parity=config.parity).flip())

    def elaborate(self, platform):
        m = Module()
        kept, tables = kept_bits(self._config), {}
        for name, table in QP_TABLES.items():
            tables[name] = made = Table(
                row=table.row,
                depth=self._config.qps,
                index_width=Shape.cast(QpNumber).width,
                reads=len(readers(name)),
                owned=table.owner is not None,
                kept=kept.get(name, -1),
                parity=self._config.parity,
            )
            m.submodules[name] = made
            connect(m, flipped(getattr(self, name)), made.program)
            if table.owner:
                connect(m, flipped(getattr(self, f"{name}_write")), made.write)
            if self._config.parity:
                m.d.comb += [self.bad[name].eq(made.bad), made.spoil.eq(self.spoil)]
        for machine, names in QP_MACHINES.items():
            port = getattr(self, machine)
            m.d.comb += port.valid.eq(1)
            for name in names:
                read = getattr(tables[name], f"read{readers(name).index(machine)}")
                m.d.comb += [
                    read.index.eq(port.number),
                    read.enable.eq(port.enable),
                    port.rows[name.removeprefix("qp_")].eq(read.row),
                ]
        m.d.comb += self.ready.eq(Cat(table.ready for table in tables.values()).all())
        return m
