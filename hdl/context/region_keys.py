"""The one writer of the memory regions' rows: the firmware's window, and changes of a key."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.numbers import card_number, ordinal_of
from hdl.ports.regions import KEY_USERS, RegionKeyPorts, RegionRequest
from hdl.ports.rows import MrRow, MrType
from hdl.ports.tables import TableProgram

__all__ = ["RegionKeys"]


class RegionKeys(wiring.Component):
    """Invalidates and registers keys of fast regions, between two accesses of the firmware.

    A region of CREATE_MR is FREE or FAST (``MrType``). A request reads the region's row, checks it,
    and writes it back with another type and, to register, with the new key and access. Nobody else
    writes the row meanwhile, because the firmware's accesses come through here and wait.
    Spec: IBTA vol 1, 10.6.3 (states of a region), 11.4.4 (operations on keys); virtio-rdma VR-3.18,
    VR-5.18, VR-5.20, VR-5.21.
    A key is invalidated if it names a region of CREATE_MR, with its tag, of the same function and
    PD. A region that is free already stays free. As with Soft-RoCE that is no error, so who
    does not know what has become of a key may invalidate it. A key is registered if its region part
    is ``mrn``, and this is a free region of CREATE_MR, of the same function and PD.

    Members: ``ports`` requests of the transport, one at a time, those of the first of
    ``KEY_USERS`` first; ``program`` the firmware's accesses; ``table`` the table's window.
    Latency: 7 cycles from a request to its answer, more while the firmware has an access.
    Throughput: one in 8 cycles. Errors: the answer 0; nothing was changed. Reset: idle.
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
        good, own = Signal(), Signal()  # own: the table's window is used here
        m.d.comb += [
            table.index.eq(Mux(own, index, program.index)),
            table.row.eq(program.row),
            program.read_row.eq(table.read_row),
        ]
        with m.If(own):
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
                owner = ordinal_of(self._config, request.function)
                number = request.key[8:]
                m.d.sync += index.eq(card_number(self._config, "mrs", owner, number))
                m.next = "READ"
            # READ: reads the region's row; ends when it is there.
            with m.State("READ"):
                m.d.comb += [own.eq(1), table.read.eq(1)]
                with m.If(table.done):
                    m.next = "CHECK"
            # CHECK: compares the row with the request; lasts one cycle.
            with m.State("CHECK"):
                m.d.comb += own.eq(1)
                m.d.sync += good.eq(self._allowed(request))
                m.next = "WRITE"
            # WRITE: writes the row back, if it may; ends when it is written.
            with m.State("WRITE"):
                m.d.comb += [own.eq(1), table.write.eq(good)]
                with m.If(~good | table.done):
                    m.next = "ANSWER"
            # ANSWER: says whether it was done; lasts one cycle.
            with m.State("ANSWER"):
                for number, port in enumerate(users):
                    m.d.comb += [port.rsp.valid.eq(user == number), port.rsp.payload.eq(good)]
                m.next = "FIRMWARE"
        return m

    def _allowed(self, request: RegionRequest) -> Value:
        """Whether the row in hand lets the request be done."""
        row, number = self.table.read_row, request.key[8:]
        kind = Value.cast(row.type)
        bits = ceil_log2(self._config.guest.mrs)
        return (
            (number[bits:] == 0)
            & (row.function == request.function)
            & (row.pd == request.pd)
            & Mux(
                request.register,
                (kind == MrType.FREE.value) & (request.mrn == number),
                kind[2] & (row.tag == request.key[:8]),  # FREE or FAST
            )
        )

    def _change(self, m: Module, request: RegionRequest) -> None:
        """The row that is written back."""
        old, new = self.table.read_row, self.table.row
        m.d.comb += new.eq(old)
        m.d.comb += new.type.eq(MrType.FREE)
        with m.If(request.register):
            m.d.comb += [
                new.type.eq(MrType.FAST),
                new.tag.eq(request.key[:8]),
                new.access.eq(request.access),
            ]
