"""The sinks of READs: the SGEs that take their data, kept while they are outstanding."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.boxes import LinesPort
from hdl.ports.jobs import SHORT_SINK_SGES, LineStore, SinkWrite

__all__ = ["ReadSinks"]

#: Slots of a long sink.
SLOTS = 32


class ReadSinks(wiring.Component):
    """``config.read_sinks`` short sinks, and ``config.long_sinks`` long ones.

    Who begins a READ says where its SGEs are kept (``ReadSink`` in hdl/ports/rows.py), and the
    gather writes them there while it checks them. The scatter reads them for the responses; the
    sink is given away again when the last one has been placed (``Commit``), so there is nothing to
    look for, to compare or to forget.
    Members: ``i``: an SGE. ``reader``: reads the lines of all stores, of which the WQEs' are read
    through ``lines``. Latency: 1 cycle to read, as in ``lines``; what is read stays until the next
    read. Throughput: one SGE is written, and one read, in a cycle. Errors: none. Reset: contents
    are kept.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__({"i": In(SinkWrite), "reader": In(LinesPort()), "lines": Out(LinesPort())})

    def elaborate(self, platform):
        m = Module()
        slot, sink, config = self.reader.slot, self.i.sink, self._config
        read_store = Signal(LineStore)  # of what was read last
        with m.If(self.reader.slot_enable):
            m.d.sync += read_store.eq(slot.store)
        m.d.comb += [
            self.lines.slot.eq(slot),
            self.lines.slot_enable.eq(self.reader.slot_enable & (slot.store == LineStore.WQE)),
        ]
        stores = [(LineStore.SINK, ~sink.long, config.read_sinks, SHORT_SINK_SGES)]
        if config.max_sge > SHORT_SINK_SGES:
            stores.append((LineStore.LONG_SINK, sink.long, config.long_sinks, SLOTS))
        with m.Switch(read_store):
            for store, written, sinks, slots in stores:
                # An SGE that is written as it is read is the same as before: its READ is resent.
                rows = Ram(shape=128, depth=sinks * slots, earlier=(0,))
                m.submodules[store.name.lower()] = rows
                bits = ceil_log2(slots), ceil_log2(sinks)
                m.d.comb += [
                    rows.write.enable.eq(self.i.valid & written),
                    rows.write.index.eq(Cat(self.i.slot[: bits[0]], sink.number[: bits[1]])),
                    rows.write.row.eq(self.i.data),
                    rows.read0.index.eq(Cat(slot.slot[: bits[0]], slot.line[: bits[1]])),
                    rows.read0.enable.eq(self.reader.slot_enable & (slot.store == store)),
                ]
                with m.Case(store):
                    m.d.comb += self.reader.slot_data.eq(rows.read0.row)
            with m.Default():
                m.d.comb += self.reader.slot_data.eq(self.lines.slot_data)
        fits = sink.long | (self.i.slot < SHORT_SINK_SGES)
        require(m, platform, ~self.i.valid | fits, "a short sink has few SGEs")
        return m
