"""The row of the QP that the requester works on: read, changed, and written back."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.sums import is_sum, unequal
from hdl.common.tables import TableWrite
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import QpTx, ReadSink

from ..recovery.policy import Origin

__all__ = ["RequestRow", "Step"]


class Step(data.Struct):
    """What a row advances by when a packet has been handed over."""

    last: 1  # it is the last one of its WQE
    payload: 13  # bytes; a whole MTU unless ``last``
    packets: 24  # PSNs that it takes
    asks: 1  # it asks for an acknowledgement


class RequestRow(wiring.Component):
    """Holds the working copy of one QP's ``QpTx`` row.

    The row in the table is what the QP is known to have sent; the working copy is ahead of it by
    the packets of the current turn. ``save`` commits it. A WQE's last packet commits too, while
    the rows of the next WQE are being read, so a row that is read in these two cycles is taken
    from the working copy (``newer``).

    Members: ``read`` with ``index``: the row of that QP is asked for, which is ``qp`` from the next
    cycle on; ``load``, when it is here as ``table``: it becomes the working copy ``row``; ``move``:
    it goes back to ``origin``. Pulses that change the working copy: ``begin``, its WQE gets an
    outstanding entry, at ``place``, with ``data`` as a READ with ``sink``,
    which ``copies`` if it is a MEMCPY; ``advance`` by ``step``;
    ``skip``, the next WQE follows; ``fail``, later WQEs are flushed. ``save``: ``row`` is written,
    with ``rewinds`` in a new generation. ``begun``: the WQE at ``row.position`` has its entry, as
    it was interrupted or is sent again (as the row is loaded, and a cycle after each change of it);
    ``newest``: and no WQE behind it has one, so that
    ``row.entry`` is its place (valid a cycle after ``row``, but at once behind ``begin``).
    ``write``: port of the table ``qp_tx``.
    Parameter ``once``: a ``save`` that is held writes in its first cycle alone. What fills a cache
    waits for a cycle without a write.

    Latency: 1 cycle for each change; the row of a last packet is written in the cycle after it.
    Errors: none. Reset: zeros, nothing written.
    """

    def __init__(self, *, once: bool = False):
        self._once = once
        super().__init__(
            {
                "table": In(QpTx),
                "write": Out(TableWrite(QpNumber, QpTx)),
                "read": In(1),
                "index": In(QpNumber),
                "load": In(1),
                "move": In(1),
                "origin": In(Origin),
                "begin": In(1),
                "data": In(1),
                "copies": In(1),
                "place": In(16),
                "sink": In(ReadSink),
                "advance": In(1),
                "step": In(Step),
                "skip": In(1),
                "fail": In(1),
                "save": In(1),
                "rewinds": In(1),
                "qp": Out(QpNumber),
                "row": Out(QpTx),
                "newer": Out(1),
                "begun": Out(1),
                "newest": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        row, step = self.row, self.step
        # A last packet's row is written after the next WQE's has been read, or in that cycle.
        # It is written in this cycle, or was in the one before, for that QP.
        store, stored, stored_qp = Signal(), Signal(), Signal(QpNumber)
        ahead = Signal(6)
        save = self.save
        if self._once:
            saved = Signal()
            m.d.sync += saved.eq(self.save & (saved | ~store))
            save = self.save & ~saved
        m.d.comb += [
            self.newer.eq((store | stored) & (stored_qp == self.qp)),
            self.write.enable.eq(save | store),
            self.write.index.eq(Mux(store, stored_qp, self.qp)),
            self.write.row.eq(row),
            self.write.row.generation.eq(row.generation + self.rewinds),
            self.begun.eq(ahead.any()),
        ]
        # In pieces, and as the row becomes when it is loaded: whether a WQE may begin is late.
        comes = Mux(self.load & ~self.newer, self.table.as_value(), row.as_value())
        comes = data.View(QpTx, comes)
        m.d.sync += [
            ahead.eq(unequal(comes.position, comes.high)),
            store.eq(self.advance & step.last),
            stored.eq(store),
            self.newest.eq(is_sum(row.position, Const(1, 16), row.high, wraps=True)),
        ]
        with m.If(~store):  # it stays for as long as the row may be read as it was before
            m.d.sync += stored_qp.eq(self.qp)
        with m.If(self.read):
            m.d.sync += self.qp.eq(self.index)
        with m.If(self.move):
            m.d.sync += [
                row.position.eq(self.origin.position),
                row.offset.eq(self.origin.offset),
                row.psn.eq(self.origin.psn),
            ]
        with m.If(self.load):
            m.d.sync += row.eq(Mux(self.newer, row.as_value(), self.table.as_value()))
        with m.If(self.begin):
            m.d.sync += [
                row.high.eq(row.high + 1),
                row.whole.eq(0),
                row.entry.eq(self.place),
                row.sink.eq(self.sink),
                row.copying.eq(self.copies),
                self.newest.eq(1),
            ]
        # Late, so it chooses the sum instead of being added.
        with m.If(self.begin & self.data):
            m.d.sync += row.reads.eq(row.reads + 1)
        with m.If(self.advance):
            m.d.sync += [
                row.psn.eq(row.psn + step.packets),
                row.offset[8:].eq(row.offset[8:] + step.payload[8:]),
                row.unasked.eq(Mux(step.asks, 0, row.unasked + 1)),
            ]
        with m.If(self.advance & step.last & self.newest):
            m.d.sync += row.whole.eq(1)
        with m.If(self.skip | (self.advance & step.last)):
            m.d.sync += [row.position.eq(row.position + 1), row.offset.eq(0)]
        with m.If(self.fail):
            m.d.sync += row.error.eq(1)
        return m
