"""The pool of entries that the outstanding table links to lists."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.common.tables import TableWrite
from hdl.config import NicConfig
from hdl.ports.rows import Outstanding

__all__ = ["OutstandingPool", "link_row"]


def link_row(bits: int) -> data.StructLayout:
    """What is behind an entry: its number, and whether no answer ends it (``Append.unsent``)."""
    return data.StructLayout({"number": bits, "unsent": 1})


class OutstandingPool(wiring.Component):
    """``config.outstanding`` entries, each with the ``link_row`` of the one behind it.

    ``complete`` and ``status`` of an entry change while it waits, so they are in memories of their
    own, beside the row that is written once.
    Members: ``number`` with ``enable`` (a cycle) reads ``entry`` and ``behind``, which stay until
    the next read. ``write``: a whole entry. ``complete``, ``status``: these of an entry. ``link``:
    what is behind an entry.
    Latency: 1 cycle. Throughput: a read and one write of each kind a cycle, of different entries.
    Errors: none. Reset: contents are kept.
    """

    def __init__(self, *, config: NicConfig):
        self._entries = config.outstanding
        bits = ceil_log2(self._entries)
        super().__init__(
            {
                "number": In(bits),
                "enable": In(1),
                "entry": Out(Outstanding),
                "behind": Out(link_row(bits)),
                "write": In(TableWrite(bits, Outstanding)),
                "complete": In(TableWrite(bits, 1)),
                "status": In(TableWrite(bits, 8)),
                "link": In(TableWrite(bits, link_row(bits))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # No operation writes a row in the cycle in which it reads the same one.
        each = {"depth": self._entries, "forward": False}
        bits = ceil_log2(self._entries)
        m.submodules.rows = rows = Ram(shape=Outstanding, **each)
        m.submodules.complete = complete = Ram(shape=1, block=True, **each)
        m.submodules.status = status = Ram(shape=8, block=True, **each)
        m.submodules.links = links = Ram(shape=link_row(bits), **each)
        for ram in (rows, complete, status, links):
            m.d.comb += [ram.read0.index.eq(self.number), ram.read0.enable.eq(self.enable)]
        for ram, port in ((rows, self.write), (links, self.link)):
            wiring.connect(m, wiring.flipped(port), ram.write)
        for ram, port, value in (
            (complete, self.complete, self.write.row.complete),
            (status, self.status, self.write.row.status),
        ):
            m.d.comb += [
                ram.write.index.eq(port.index),
                ram.write.row.eq(port.row),
                ram.write.enable.eq(port.enable | self.write.enable),
            ]
            with m.If(self.write.enable):
                m.d.comb += [ram.write.index.eq(self.write.index), ram.write.row.eq(value)]
            require(m, platform, ~(port.enable & self.write.enable), "an entry is new or changes")
        m.d.comb += [
            self.entry.eq(rows.read0.row),
            self.entry.complete.eq(complete.read0.row),
            self.entry.status.eq(status.read0.row),
            self.behind.eq(links.read0.row),
        ]
        return m
