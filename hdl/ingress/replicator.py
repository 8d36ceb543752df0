"""Delivers a datagram to a group once for each member of the group."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.limits import GROUP_MEMBERS
from hdl.common.skid import Skid
from hdl.common.tables import TableRead
from hdl.config import NicConfig
from hdl.ports.headers import GroupRow
from hdl.ports.numbers import function_of

from .groups import found_groups
from .rows import KEPT

__all__ = ["Replicator"]


class Replicator(wiring.Component):
    """Passes rows of packets; that of a datagram to a group leaves once for each member.

    Spec: IBTA vol 1, 10.5.2; docs/multicast.md.
    Members: ``kept`` In: rows of good packets; of a ``multicast`` one, ``dest_qp`` is a
    ``found_groups``. ``o`` Out: the same rows; a copy has its member's QP number and function.
    ``table``: reads the groups. ``again`` Out: what becomes of the payload of a multicast packet
    that has some: 1 with each copy: it is read; 0: it is released. ``copied``, ``unclaimed`` Out,
    for one cycle: a copy has left; a packet was nobody's.
    ``kept`` may be the output of a RAM; ``o.valid`` is known early.
    Latency: 1 cycle, 5 to the first copy. Throughput: one packet per cycle; of a group, a copy in
    4 cycles, and 2 for the empty place that ends it. Errors: none. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "kept": In(stream.Signature(KEPT)),
                "o": Out(stream.Signature(KEPT)),
                "table": Out(TableRead(8, GroupRow)),
                "again": Out(stream.Signature(1)),
                "copied": Out(1),
                "unclaimed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.front = front = Skid(shape=KEPT)
        connect(m, flipped(self.kept), front.i)
        row, o = front.o.payload, self.o
        plain = front.o.valid & ~row.multicast  # a packet to one QP
        served = Signal(self._config.functions)  # functions whose members have their copies
        waiting, ordinal = self._next_function(m, row, served)
        place = Signal(range(GROUP_MEMBERS))
        member = Signal(24, reset_less=True)  # at that place; 0: nobody
        delivered = Signal()  # a copy has left
        offers = Signal()  # a copy
        left = Signal()  # ... just now
        tells, word = Signal(), Signal()  # of the payload, in the next cycle
        empty, nobody = Signal(), Signal()
        members = Array(self.table.row[f"member{n}"] for n in range(GROUP_MEMBERS))
        m.d.sync += [empty.eq(row.length == 0), left.eq(0)]  # the row stays for some cycles
        with m.If(left):
            m.d.comb += [self.copied.eq(1), tells.eq(~empty), word.eq(1)]
        with m.If(tells):
            m.d.sync += [self.again.valid.eq(1), self.again.payload.eq(word)]
        with m.Elif(self.again.ready):
            m.d.sync += self.again.valid.eq(0)
        m.d.comb += [
            nobody.eq(member == 0),
            # One look-up table of registers: receive decides much by it. A packet to one QP passes
            # at once.
            o.valid.eq(plain | offers),
            front.o.ready.eq(plain & o.ready),
            o.payload.eq(row),
            o.payload.dest_qp.eq(Mux(row.multicast, member, row.dest_qp)),
            o.payload.function.eq(Mux(row.multicast, function_of(ordinal), row.function)),
        ]
        with m.FSM(name="replicator"):
            # PASS: packets to one QP pass; ends with one to a group.
            with m.State("PASS"):
                m.d.sync += [served.eq(0), delivered.eq(0)]
                with m.If(front.o.valid & row.multicast):
                    m.next = "GROUP"
            # GROUP: reads the group of the next function; ends when all are served.
            with m.State("GROUP"):
                m.d.comb += self.table.enable.eq(1)
                with m.If(waiting):
                    m.next = "MEMBER"
                with m.Else():
                    m.next = "RELEASE"
            # MEMBER: looks up the member at a place; ends by itself.
            with m.State("MEMBER"):
                m.d.sync += member.eq(members[place])
                m.next = "COPY"
            # COPY: begins to offer the member's copy; ends when the word about the one before has
            # been taken, or there is no member.
            with m.State("COPY"):
                with m.If(nobody):
                    self._leave(m, served, ordinal, place)
                with m.Elif(~self.again.valid):
                    m.d.sync += offers.eq(1)
                    m.next = "OFFER"
            # OFFER: ends a cycle after the copy has been taken: that is known late.
            with m.State("OFFER"):
                m.d.sync += [left.eq(offers & o.ready), offers.eq(offers & ~o.ready)]
                with m.If(left):
                    m.d.sync += [delivered.eq(1), place.eq(place + 1)]
                    m.next = "MEMBER"
                    with m.If(place == GROUP_MEMBERS - 1):
                        self._leave(m, served, ordinal, place)
            # RELEASE: gives the packet back; ends when the word about its last copy has been taken.
            with m.State("RELEASE"):
                with m.If(~self.again.valid):
                    m.d.comb += [
                        tells.eq(~empty),
                        front.o.ready.eq(1),
                        self.unclaimed.eq(~delivered),
                    ]
                    m.next = "PASS"
        return m

    @staticmethod
    def _leave(m: Module, served: Signal, ordinal: Signal, place: Signal) -> None:
        """The members of a function have their copies."""
        m.d.sync += [place.eq(0), served.bit_select(ordinal, 1).eq(1)]
        m.next = "GROUP"

    def _next_function(self, m: Module, row, served: Signal) -> tuple[Signal, Signal]:
        """Whether members of a function wait for their copies, and its ordinal."""
        layout = found_groups(self._config)
        found = data.View(layout, row.dest_qp[: layout.size])
        waiting, ordinal = Signal(), Signal(max(1, self._config.ordinal_bits))
        number = Signal(layout.elem_shape["number"].shape)
        for n in reversed(range(self._config.functions)):
            with m.If(found[n].hit & ~served[n]):
                m.d.comb += [waiting.eq(1), ordinal.eq(n), number.eq(found[n].number)]
        m.d.comb += self.table.index.eq(Cat(number, ordinal[: self._config.ordinal_bits]))
        return waiting, ordinal
