"""Whether the WQE that is asked for has been pushed, and can be taken from there."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.ports.jobs import FetchRequest
from hdl.ports.rows import QueueRow

from ..ring.types import Element
from .types import PUSHED_FUNCTION, Entry, PushPort

__all__ = ["PushAsked"]


class PushAsked(wiring.Component):
    """Asks the push window for the WQE of a request.

    Members: ``look`` (a cycle) with ``request``, and whether it asks for a WQE and not for the
    index alone (``wanted`` In); from the next cycle until ``leave`` (a cycle):
    ``row`` In, of its queue, with the bits of a head that its table has (``within`` In), and
    whether the request may be carried out (``known`` In); ``use`` Out: the element is ``element``,
    which the asker hands on with ``leave``; one that is not used then is given back a cycle later.
    ``clear`` In: nothing is on its way that has to go first. ``release``, ``released`` In: an
    element has been read. ``port`` Out: all but ``row`` of it is used.
    Latency: 1 cycle. Throughput: one request at a time. Errors: a head beyond the table, and a
    request that cannot be carried out: the push is not used. Reset: nothing is asked for.
    """

    def __init__(self):
        super().__init__(
            {
                "look": In(1),
                "request": In(FetchRequest),
                "wanted": In(1),
                "row": In(QueueRow),
                "within": In(16),
                "known": In(1),
                "clear": In(1),
                "use": Out(1),
                "element": Out(Element),
                "leave": In(1),
                "release": In(1),
                "released": In(Entry),
                "port": Out(PushPort()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port, element, request = self.port, self.element, self.request
        taken, entry = Signal(), Signal(Entry, reset_less=True)
        head, length = Signal(16, reset_less=True), Signal(16, reset_less=True)
        unfit = Signal()
        m.d.sync += unfit.eq(taken & self.leave & ~self.use)
        m.d.comb += [
            port.ask.eq(self.look & self.wanted),
            port.take.eq(self.clear),
            port.qp.eq(request.qp),
            port.position.eq(request.position),
            port.release.eq(self.release),
            port.released.eq(self.released),
            port.unfit.eq(unfit),
            port.unfit_entry.eq(entry),
            self.use.eq(taken & self.known & ((head & ~self.within) == 0)),
            element.head.eq(head),
            element.place.eq(head),
            element.addr.eq(entry),
            element.length.eq(length),
            element.table.function.eq(PUSHED_FUNCTION),
            element.table.rules.eq(self.row.rules),
        ]
        with m.If(self.look):
            m.d.sync += [
                taken.eq(port.ask & port.hit & port.take),
                entry.eq(port.entry),
                head.eq(port.head),
                length.eq(port.length),
            ]
        return m
