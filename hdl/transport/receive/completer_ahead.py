"""The oldest WQE of the packet that the completer takes next, looked up while it is at work."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require
from hdl.ports.jobs import Oldest
from hdl.ports.numbers import QpNumber

from ..outstanding.types import Look

__all__ = ["Coming", "OldestAhead"]


class Coming(wiring.Signature):
    """The READ response that the intake holds for the completer, seen from the intake.

    ``valid`` from the cycle in which the rows of ``qp`` arrive until it is handed over or dropped,
    with ``gone`` in the last such cycle. ``loads``: ``qp`` is ``next`` from the next cycle on,
    whatever is held then.
    """

    def __init__(self):
        flags = {name: Out(1) for name in ("valid", "gone", "loads")}
        super().__init__(flags | {"qp": Out(QpNumber), "next": Out(QpNumber)})


class OldestAhead(wiring.Component):
    """Looks up the oldest outstanding WQE of a READ response before the completer takes it.

    The look is speculative: the packet may turn out not to be its QP's. Then the answer is dropped,
    and a request that the table has not taken is withdrawn. Behind a READ of the same QP that ends,
    the pop that removes it shows the next WQE, so no look is needed (``join``).
    Members: ``coming``: the packet; ``may``: nothing that is under way changes its QP's list;
    ``join`` (a cycle, while ``free``): the next pop is of its QP, and looks; ``popped``: a pop has
    been taken; ``head_req``, ``head_rsp``: the outstanding table; ``asked``: the next answer of the
    table is for this one; ``here``, ``oldest``: the answer, until the packet is gone.
    Latency: the table's, 2 cycles or more, 1 behind a pop. Throughput: one packet at a time.
    Errors: none. Reset: nothing is asked for.
    """

    def __init__(self):
        super().__init__(
            {
                "coming": In(Coming()),
                "may": In(1),
                "join": In(1),
                "popped": In(1),
                "free": Out(1),
                "head_req": Out(stream.Signature(Look)),
                "head_rsp": In(stream.Signature(Oldest)),
                "asked": Out(1),
                "here": Out(1),
                "oldest": Out(Oldest),
            }
        )

    def elaborate(self, platform):
        m = Module()
        over = Signal()  # the packet that was asked for is gone
        m.d.comb += self.head_req.payload.qp.eq(self.coming.qp)
        with m.FSM(name="ahead"):
            # IDLE: asks for the oldest WQE of the packet that comes; ends when that is taken, or
            # when a pop will show it.
            with m.State("IDLE"):
                m.d.comb += self.head_req.valid.eq(self.coming.valid & self.may)
                m.d.comb += self.free.eq(1)
                m.d.sync += over.eq(self.coming.gone)
                with m.If(self.join):
                    m.next = "JOINED"
                with m.Elif(self.head_req.valid & self.head_req.ready):
                    m.next = "ASKED"
            # JOINED: waits for the pop; ends when the table takes it.
            with m.State("JOINED"):
                with m.If(self.coming.gone):
                    m.d.sync += over.eq(1)
                with m.If(self.popped):
                    m.next = "ASKED"
            # ASKED: waits for the answer; ends with it.
            with m.State("ASKED"):
                m.d.comb += [self.asked.eq(1), self.head_rsp.ready.eq(1)]
                m.d.sync += self.oldest.eq(self.head_rsp.payload)
                with m.If(self.coming.gone):
                    m.d.sync += over.eq(1)
                with m.If(self.head_rsp.valid):
                    m.next = "HERE"
                    with m.If(over | self.coming.gone):
                        m.next = "IDLE"
            # HERE: keeps the answer for the completer; ends when the packet is gone.
            with m.State("HERE"):
                m.d.comb += self.here.eq(1)
                with m.If(self.coming.gone):
                    m.next = "IDLE"
        require(m, platform, self.free | ~self.join, "a pop looks for one packet at a time")
        return m
