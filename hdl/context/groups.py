"""The table of multicast groups: rows in RAM, and their addresses in registers."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.tables import TableProgram, TableRead
from hdl.config import NicConfig
from hdl.ports.headers import GroupAddress, GroupRow

from .table import Table

__all__ = ["GroupTable"]


class GroupTable(wiring.Component):
    """``config.groups`` rows, written by the firmware through ``program``, those of each function
    one after the other; ``addresses`` of all of them for ingress, which compares with every one at
    once; ``read`` for its ``Replicator``; ``any`` Out: there is a group.

    Latency: a read takes 1 cycle; ``addresses`` and reads see a write from the next cycle on, and
    ``any`` a cycle later. Errors: none; the firmware's window checks its indices, and ingress asks
    for rows that it has found. Reset: every row invalid; ``ready`` when the RAM is cleared.
    """

    def __init__(self, *, config: NicConfig):
        self._groups = config.groups
        super().__init__(
            {
                "program": In(TableProgram(8, GroupRow)),
                "read": In(TableRead(8, GroupRow)),
                "addresses": Out(data.ArrayLayout(GroupAddress, config.groups)),
                "any": Out(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        table = Table(row=GroupRow, depth=self._groups, index_width=8, owned=False)
        m.submodules.table = table
        wiring.connect(m, wiring.flipped(self.program), table.program)
        wiring.connect(m, wiring.flipped(self.read), table.read0)
        m.d.comb += self.ready.eq(table.ready)
        m.d.sync += self.any.eq(Cat(address.valid for address in self.addresses).any())
        for i in range(self._groups):
            with m.If(self.program.write & self.program.done & (self.program.index == i)):
                row, address = self.program.row, self.addresses[i]
                m.d.sync += [address.valid.eq(row.valid), address.gid.eq(row.gid)]
        return m
