"""The QPs whose speculative packets are being rolled back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.ports.numbers import QpNumber

__all__ = ["FailedQp", "FailedQps"]


class FailedQp(data.Struct):
    """A QP one of whose checks was not good."""

    qp: QpNumber
    requester: 1  # the check was a READ response's, otherwise a request's
    unreported: 1  # no WQE has ended with ``status`` yet
    status: 8


class FailedQps(wiring.Component):
    """A list of failed QPs in RAM, searched one row after the other: nothing is in a hurry then.

    Parameter: ``depth``, rows. The user sees to it that there are never more.
    Members: ``search`` (one cycle) looks for ``qp``, ``newest`` (one cycle) reads the row added
    last. ``done`` (one cycle) ends either. ``found`` then says whether the search has found it, and
    from the next cycle on ``row`` is the row read last, until the next look. ``add`` appends
    ``added``; ``report`` clears ``unreported`` in the row found; ``remove`` drops the newest row.
    ``any``: there are rows.
    Latency: a search takes 3 cycles for each row up to the one found, ``newest`` takes 2.
    Throughput: one at a time. Errors: none. Reset: empty.
    """

    def __init__(self, *, depth: int):
        self._depth = depth
        super().__init__(
            {
                "search": In(1),
                "newest": In(1),
                "qp": In(QpNumber),
                "done": Out(1),
                "found": Out(1),
                "row": Out(FailedQp),
                "add": In(1),
                "added": In(FailedQp),
                "report": In(1),
                "remove": In(1),
                "any": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(shape=FailedQp, depth=self._depth, forward=False)
        count = Signal(range(self._depth + 1))  # rows in use, from the first on
        at = Signal(range(self._depth))
        row = Signal(FailedQp, reset_less=True)
        match, final = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [
            self.found.eq(match),
            self.row.eq(row),
            rows.read0.index.eq(at),
        ]
        require(m, platform, ~(self.add & (count == self._depth)), "there is a row for each QP")
        require(m, platform, ~(self.remove & (count == 0)), "no row is removed that is not there")
        require(m, platform, ~(self.add & self.report), "a row is added or reported")
        with m.FSM(name="failed") as failed:
            # IDLE: nothing is looked for; ends with ``search`` or ``newest``.
            with m.State("IDLE"):
                with m.If(self.search):
                    m.d.sync += at.eq(0)
                    m.next = "READ"
                with m.Elif(self.newest):
                    m.d.sync += at.eq(count - 1)
                    m.next = "READ-NEWEST"
            # READ: reads one row; ends by itself.
            with m.State("READ"):
                m.d.comb += rows.read0.enable.eq(1)
                m.next = "COMPARE"
            # COMPARE: compares the row with the QP looked for; ends by itself.
            with m.State("COMPARE"):
                m.d.sync += [
                    row.eq(rows.read0.row),
                    match.eq(rows.read0.row.qp == self.qp),
                    final.eq(at == count - 1),
                ]
                m.next = "JUDGE"
            # JUDGE: ends the search if the row matches or is the last; else the next one is read.
            with m.State("JUDGE"):
                with m.If(match | final):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += at.eq(at + 1)
                    m.next = "READ"
            # READ-NEWEST: reads the newest row; ends by itself.
            with m.State("READ-NEWEST"):
                m.d.comb += rows.read0.enable.eq(1)
                m.next = "KEEP-NEWEST"
            # KEEP-NEWEST: keeps it; ends by itself.
            with m.State("KEEP-NEWEST"):
                m.d.sync += row.eq(rows.read0.row)
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        looks, idle = self.search | self.newest, failed.ongoing("IDLE")
        text = "one look at a time, and only at rows that are there"
        require(m, platform, ~looks | (idle & (count != 0)), text)
        # A QP that fails is a row more; the status that a row has not reported is given once.
        with m.If(self.report):
            m.d.comb += [
                rows.write.index.eq(at),
                rows.write.row.eq(row),
                rows.write.row.unreported.eq(0),
                rows.write.enable.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                rows.write.index.eq(count),
                rows.write.row.eq(self.added),
                rows.write.enable.eq(self.add),
            ]
        # All of Receive rests while there are rows, so that is known from the beginning of a cycle.
        with m.If(self.add):
            m.d.sync += [count.eq(count + 1), self.any.eq(1)]
        with m.Elif(self.remove):
            m.d.sync += [count.eq(count - 1), self.any.eq(count != 1)]
        return m
