"""The one writer of the memory regions' rows: the firmware's window, and changes of a key."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.sums import at_most, unequal, wide_difference, wide_sum
from hdl.common.tables import TableProgram
from hdl.config import NicConfig
from hdl.ports.keys import decode_key, layout_of
from hdl.ports.numbers import card_number, ordinal_of
from hdl.ports.regions import (
    KEY_USERS,
    RegionKeyPorts,
    RegionRequest,
    asked_layout,
    binds_window,
    by_peer,
    sets_layout,
)
from hdl.ports.rows import MrRow, MrType

__all__ = ["RegionKeys"]


class _Facts(data.Struct):
    """What the row in hand has in common with the request: a bit for each three bits that are
    equal. It is in registers, a cycle after the row: the table's RAM is late, and what follows from
    these is worked out behind them."""

    kind: 4  # the row's type
    function: 3  # of the request's function
    pd: 6  # of the request's PD
    key: 3  # has the tag of ``key``
    qp: 5  # bound by the request's QP
    lkey: 3  # has the tag of ``lkey``
    lends: 1  # may have windows with the rights that the request gives


#: Kinds of indirect keys.
_INDIRECT = (MrType.MKEY_FREE.value, MrType.MKEY.value)


class RegionKeys(wiring.Component):
    """Invalidates and registers keys of fast regions, and binds memory windows, between two
    accesses of the firmware.

    A region of CREATE_MR is FREE or FAST (``MrType``). A request reads the region's row, checks it,
    and writes it back with another type and, to register, with the new key and access. Nobody else
    writes the row meanwhile, because the firmware's accesses come through here and wait.
    Spec: IBTA vol 1, 10.6.3 (states of a region), 11.4.4 (operations on keys); virtio-rdma VR-3.18,
    VR-5.18, VR-5.20, VR-5.21.
    A key is invalidated if it names a region of CREATE_MR, with its tag, of the same function and
    PD. A region that is free already stays free. As with Soft-RoCE that is no error, so who
    does not know what has become of a key may invalidate it. A key is registered if its region part
    is ``mrn``, and this is a free region of CREATE_MR, of the same function and PD.
    A window is bound if it is of the same function and PD, and of type 1 or not bound; and if the
    key ``lkey`` is that of a region of REG_USER_MR, of the same function and PD, that may have
    windows, grants local write if peers may change the window, and holds all of its bytes. Its row
    is then complete in itself, except for the page list, which is the region's. A window of type 1
    that gets no bytes is not bound any more (docs/extensions.md).
    An indirect key gets a layout, in the place of one that it may have, if it has that very key, is
    of the same function and PD, and has room for the entries. Peers may invalidate it if its row
    says so.

    Members: ``ports`` requests of the transport, one at a time, those of the first of
    ``KEY_USERS`` first; ``program`` the firmware's accesses; ``table`` the table's window.
    Latency: 7 cycles from a request to its answer, 12 to bind, more while the firmware has an
    access. Throughput: one in 8 cycles, 13 to bind. Errors: the answer 0; nothing was changed.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        program = TableProgram(16, MrRow)
        super().__init__(
            {"ports": In(RegionKeyPorts()), "program": In(program), "table": Out(program)}
        )

    def elaborate(self, platform):
        m = Module()
        program, table = self.program, self.table
        users = [getattr(self.ports, name) for name in KEY_USERS]
        request, index = Signal(RegionRequest, reset_less=True), Signal(16, reset_less=True)
        user = Signal(range(len(users)))
        second = Signal()  # the window is of type 2
        good, own = Signal(), Signal()  # own: the table's window is used here
        m.d.comb += [
            table.index.eq(Mux(own, index, program.index)),
            table.row.eq(program.row),
            program.read_row.eq(table.read_row),
        ]
        parent, place, checks = Signal(16, reset_less=True), Signal(48), Signal(4)
        facts = Signal(_Facts, reset_less=True)
        self._compare(m, request, facts)
        binds = binds_window(self._config, request)
        if self._config.mkeys:
            indirect = self._compare_layout(m, request)
        if self._config.windows:
            self._measure(m, request, facts, place, checks)
            with m.If(own & binds):
                self._bind(m, request, second, parent, place)
        with m.If(own & ~binds):
            self._change(m, request)
        with m.FSM(name="keys"):
            # FIRMWARE: the firmware has the window. Ends with a request, when no access is going
            # on.
            with m.State("FIRMWARE"):
                m.d.comb += [
                    table.read.eq(program.read),
                    table.write.eq(program.write),
                    program.done.eq(table.done),
                ]
                with m.If(~program.read & ~program.write):
                    for number, port in reversed(list(enumerate(users))):
                        with m.If(port.req.valid):
                            m.d.sync += [user.eq(number), request.eq(port.req.payload)]
                    with m.If(Cat(port.req.valid for port in users).any()):
                        m.next = "NUMBER"
            # NUMBER: works out which row it is; lasts one cycle.
            with m.State("NUMBER"):
                m.d.comb += Array([port.req.ready for port in users])[user].eq(1)
                m.d.sync += index.eq(self._number(request, request.key))
                m.d.sync += parent.eq(self._number(request, request.lkey))
                m.next = "READ"
            # READ: reads the region's row; ends when it is there.
            with m.State("READ"):
                m.d.comb += [own.eq(1), table.read.eq(1)]
                with m.If(table.done):
                    m.next = "CHECK"
            # CHECK: says whether the row, which has been compared with the request, lets it be
            # done; lasts one cycle.
            with m.State("CHECK"):
                m.d.comb += own.eq(1)
                allowed = self._allowed(request, facts)
                if self._config.mkeys:
                    allowed &= indirect
                m.d.sync += good.eq(allowed)
                m.next = "WRITE"
                if self._config.windows:
                    m.d.sync += second.eq(decode_key(self._config, facts.kind).changes)
                    with m.If(binds):
                        m.next = "PARENT"
            if self._config.windows:
                # PARENT: reads the row of the region that the window is to be bound to; ends when
                # it is there, and at once if there is no need of it.
                with m.State("PARENT"):
                    m.d.comb += [own.eq(1), table.index.eq(parent), table.read.eq(good)]
                    with m.If(~good | (request.length == 0)):
                        m.d.sync += good.eq(good & ~second)
                        m.next = "WRITE"
                    with m.Elif(table.done):
                        m.next = "MEASURE"
                # MEASURE: works out where in the region the window is; lasts one cycle.
                with m.State("MEASURE"):
                    m.d.comb += own.eq(1)
                    m.next = "BOUNDS"
                # BOUNDS: says whether it is inside; lasts one cycle.
                with m.State("BOUNDS"):
                    m.d.comb += own.eq(1)
                    m.d.sync += good.eq(checks.all())
                    m.next = "WRITE"
            # WRITE: writes the row back, if it may; ends when it is written.
            with m.State("WRITE"):
                writes = good
                if self._config.mkeys:
                    writes &= ~(sets_layout(self._config, request) & asked_layout(request).look)
                m.d.comb += [own.eq(1), table.write.eq(writes)]
                with m.If(~writes | table.done):
                    m.next = "ANSWER"
            # ANSWER: says whether it was done; lasts one cycle.
            with m.State("ANSWER"):
                for number, port in enumerate(users):
                    m.d.comb += [port.rsp.valid.eq(user == number), port.rsp.payload.eq(good)]
                m.next = "FIRMWARE"
        return m

    def _number(self, request: RegionRequest, key: Value) -> Value:
        """The row of what a key of the request names."""
        owner = ordinal_of(self._config, request.function)
        return card_number(self._config, "mrs", owner, key[8:])

    def _beyond(self, key: Value) -> Value:
        """Whether a key names nothing that a function can have."""
        return key[8:][ceil_log2(self._config.guest.mrs) :] != 0

    def _compare(self, m: Module, request: RegionRequest, facts: _Facts) -> None:
        """Compare the row in hand with the request."""
        row = self.table.read_row
        changes = request.access[1] | request.access[3]
        m.d.sync += [
            facts.kind.eq(row.type),
            facts.function.eq(~unequal(request.function, row.function)),
            facts.pd.eq(~unequal(request.pd, row.pd)),
            facts.key.eq(~unequal(request.key[:8], row.tag)),
            facts.qp.eq(~unequal(request.qp, row.qp)),
            facts.lkey.eq(~unequal(request.lkey[:8], row.tag)),
            facts.lends.eq(row.bind & (row.access[0] | ~changes)),
        ]
        if self._config.placement:  # of FLUSH a window has no right that the region has not
            more = (request.flush.as_value() & ~row.flush.as_value()).any()
            m.d.sync += facts.lends.eq(row.bind & (row.access[0] | ~changes) & ~more)

    def _compare_layout(self, m: Module, request: RegionRequest) -> Signal:
        """Whether the row in hand, a cycle before, lets a request be done that is about an indirect
        key; of others nothing."""
        row, asked = self.table.read_row, asked_layout(request)
        # The table's RAM is late: what the row says is kept before it is combined.
        kind, fits = Signal(4, reset_less=True), Signal(reset_less=True)
        given = Signal(reset_less=True)  # peers may invalidate it
        m.d.sync += [
            kind.eq(row.type),
            fits.eq(asked.layout.entries <= layout_of(row).most),
            given.eq(row.bind),
        ]
        able = Signal()
        free = (kind == MrType.MKEY_FREE.value) | ~asked.check_free
        with m.If(sets_layout(self._config, request)):
            m.d.comb += able.eq(kind.matches(*_INDIRECT) & fits & free)
        with m.Else():
            m.d.comb += able.eq(~kind.matches(*_INDIRECT) | ~by_peer(request) | given)
        return able

    def _measure(
        self, m: Module, request: RegionRequest, facts: _Facts, place: Signal, checks: Signal
    ) -> None:
        """Where a window begins in its region, whose row is in hand since the cycle before, and
        whether it may be bound there."""
        row = self.table.read_row
        # Registered, because the table's RAM is late; the upper bits of the length are 0.
        va, length = Signal(64, reset_less=True), Signal(64, reset_less=True)
        distance, furthest = Signal(65, reset_less=True), Signal(65, reset_less=True)
        begins, rights = Signal(48, reset_less=True), Signal()
        m.d.sync += [
            va.eq(row.va),
            length.eq(row.length),
            distance.eq(wide_difference(m, request.va, va)),
            furthest.eq(wide_difference(m, length, request.length)),
            begins.eq(row.start),
            rights.eq(
                ~self._beyond(request.lkey)
                & (facts.kind == MrType.PAGES.value)
                & facts.function.all()
                & facts.pd.all()
                & facts.lkey.all()
                & facts.lends
            ),
            place.eq(wide_sum(m, distance[:48], begins)),
        ]
        m.d.comb += checks.eq(
            Cat(rights, distance[64], furthest[64], at_most(distance[:64], furthest[:64]))
        )

    def _bind(
        self,
        m: Module,
        request: RegionRequest,
        second: Signal,
        parent: Signal,
        place: Signal,
    ) -> None:
        """The row of a window that is bound, or no longer bound."""
        region, new = self.table.read_row, self.table.row
        m.d.comb += [
            new.eq(0),
            Value.cast(new.type).eq(Cat(Const(0, 1), request.length != 0, second, Const(1, 1))),
            new.function.eq(request.function),
            new.pd.eq(request.pd),
            new.tag.eq(request.key[:8]),
        ]
        with m.If(request.length != 0):
            m.d.comb += [
                new.access.eq(request.access),
                new.flush.eq(request.flush),
                new.va.eq(request.va & (~request.zero_based).replicate(64)),
                new.length.eq(request.length),
                new.block.eq(region.block),
                new.start.eq(place),
                new.page_size.eq(region.page_size),
                new.two_level.eq(region.two_level),
                new.parent.eq(parent),
                new.qp.eq(request.qp),
            ]

    def _allowed(self, request: RegionRequest, facts: _Facts) -> Value:
        """Whether the row that has been compared lets the request be done."""
        kind, rules = facts.kind, decode_key(self._config, facts.kind)
        register = (kind == MrType.FREE.value) & (request.mrn == request.key[8:])
        if self._config.mkeys:  # the kind of an indirect key is another matter
            own = facts.key.all() & (request.mrn == request.key[8:])
            register = Mux(sets_layout(self._config, request), own, register)
        other = rules.changes & facts.key.all()
        if self._config.windows:
            bound = kind == MrType.BOUND_2.value
            free = other & (~bound | facts.qp.all())
            other = Mux(binds_window(self._config, request), rules.window & ~bound, free)
        wanted = Mux(request.register, register, other)
        owned = facts.function.all() & facts.pd.all()
        return ~self._beyond(request.key) & owned & wanted

    def _change(self, m: Module, request: RegionRequest) -> None:
        """The row that is written back."""
        old, new = self.table.read_row, self.table.row
        m.d.comb += new.eq(old)
        m.d.comb += new.type.eq(MrType.FREE)
        if self._config.windows:
            with m.If(decode_key(self._config, old.type).window):
                m.d.comb += new.type.eq(MrType.WINDOW_2)
        if self._config.mkeys:
            with m.If(Value.cast(old.type).matches(*_INDIRECT)):
                m.d.comb += new.type.eq(MrType.MKEY_FREE)
        with m.If(request.register):
            m.d.comb += [
                new.type.eq(MrType.FAST),
                new.tag.eq(request.key[:8]),
                new.access.eq(request.access),
                new.flush.eq(request.flush),
            ]
        if self._config.mkeys:
            layout, asked = layout_of(new), asked_layout(request).layout
            with m.If(sets_layout(self._config, request)):
                m.d.comb += [
                    new.type.eq(MrType.MKEY),
                    new.flush.eq(0),
                    new.length.eq(request.length),
                    layout.eq(asked),
                    layout.most.eq(layout_of(old).most),
                ]
