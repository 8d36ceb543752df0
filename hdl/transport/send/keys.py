"""Work requests that the requester executes by itself: LOCAL_INV, REG_MR, BIND_MW, and those that
give an indirect key a layout."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.enums import OPTIONAL_ACCESS, Access, WcStatus
from hdl.config import NicConfig
from hdl.ports.boxes import SpareLinesPort
from hdl.ports.jobs import Destination, SendWqe
from hdl.ports.keys import LayoutWrite
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_layout
from hdl.ports.regions import RegionKeyPort
from hdl.ports.rows import QpCfg
from hdl.ports.shared import ex, operands

from .layouts import RequestLayout

__all__ = ["BOUND", "REGISTERED", "RequestKeys"]

#: Access flags that REG_MR may ask for: the rights, and those that may be ignored.
REGISTERED = OPTIONAL_ACCESS | 0xF
#: Those that BIND_MW may ask for.
BOUND = OPTIONAL_ACCESS | int(
    Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.ZERO_BASED
)
#: The lowest bit of the flags of FLUSH.
FLUSH_AT = Access.FLUSH_GLOBAL.bit_length() - 1


class RequestKeys(wiring.Component):
    """Changes the state of a memory region or window for a work request, while its QP has the turn.

    Spec: IBTA vol 1, 10.6.3, 10.8.3.3 (order), 11.4.4; virtio-rdma VR-5.18, VR-5.20, E-22.
    LOCAL_INV begins when all WQEs before it have ended (``RequestAdmission`` sees to that, as
    Soft-RoCE does), and here it waits until the checks of what they received are over (``settle``).
    REG_MR and BIND_MW begin when it is their turn; the WQEs behind them find the key valid, as none
    of them is looked at before this one is done. With FENCE they wait for ``settle``, too: the READ
    before may have invalidated the same region. A layout (``RequestLayout``) begins as LOCAL_INV
    does: what is sent again finds the layout that it was sent with.

    Members: ``start`` is held until ``done``, a cycle, with ``status``; ``wqe``, ``cfg``, ``qp``
    meanwhile, and ``destination``, where the fields of BIND_MW are that no other WQE has.
    ``settle`` is held until ``settled``: all that the receive side has begun before is decided.
    ``port``: the owner of the regions' keys. On cards with indirect keys ``line``: the WQE's, and
    ``lines``, ``layout``: see ``RequestLayout``.
    Latency: 10 cycles, and the wait for ``settled``. Throughput: one at a time.
    Errors: LOC_PROT_ERR for a key that cannot be invalidated, MW_BIND_ERR (a memory management
    operation error, IBTA vol 1, 11.6.2) for a registration or a window that is not allowed.
    Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "wqe": In(SendWqe),
                "cfg": In(QpCfg),
                "qp": In(QpNumber),
                "destination": In(Destination),
                "done": Out(1),
                "status": Out(8),
                "settle": Out(1),
                "settled": In(1),
                "port": Out(RegionKeyPort()),
            }
            | (
                {"line": In(8), "lines": Out(SpareLinesPort()), "layout": Out(LayoutWrite)}
                if config.mkeys
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        wqe, refused = self.wqe, Signal()
        grants = ~wqe.operation.invalidate  # REG_MR, BIND_MW, layout: it gives a key rights
        layout = is_layout(self._config, wqe.operation.completion)
        bad = self._bad_access(grants)
        self._request(m, grants)
        failure = Mux(grants, WcStatus.MW_BIND_ERR.value, WcStatus.LOC_PROT_ERR.value)
        m.d.comb += self.status.eq(Mux(refused, failure, WcStatus.SUCCESS.value))
        if self._config.windows:
            self._window(m, grants)
        with m.FSM(name="keys"):
            # IDLE: nothing is executed; ``start`` ends it.
            with m.State("IDLE"):
                m.d.sync += refused.eq(bad)
                with m.If(self.start):
                    m.next = "ASK"
                    settles = ~grants | wqe.fence
                    if self._config.mkeys:
                        settles |= layout
                    with m.If(settles):
                        m.next = "SETTLE"
            # SETTLE: waits for the receive side to decide what came before; ends when it has.
            with m.State("SETTLE"):
                m.d.comb += self.settle.eq(1)
                with m.If(self.settled):
                    m.next = "ASK"
                    if self._config.mkeys:
                        with m.If(layout & ~refused):
                            m.next = "LAYOUT"
            if self._config.mkeys:
                self._layout(m, refused)
            # ASK: asks for the change, if it is legal; ends when that is taken.
            with m.State("ASK"):
                m.d.comb += self.port.req.valid.eq(~refused)
                with m.If(refused):
                    m.next = "DONE"
                with m.Elif(self.port.req.ready):
                    m.next = "ANSWER"
            # ANSWER: waits for the answer; ends with it.
            with m.State("ANSWER"):
                m.d.sync += refused.eq(~self.port.rsp.payload)
                with m.If(self.port.rsp.valid):
                    m.next = "DONE"
            # DONE: tells of the end; lasts one cycle.
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m

    @property
    def _operands(self) -> data.View:
        further = self._config.windows or self._config.mkeys
        return operands(self.wqe, self.destination if further else None)

    def _bad_access(self, grants: Value) -> Value:
        """Whether REG_MR or BIND_MW, which ``grants`` rights, asks for some that it may not."""
        access = self._operands.reg.access  # BIND_MW has its own there, too
        known = self._flushes()
        remote = (access & int(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) != 0
        # Who lets peers write must be able to write, too.
        odd = (access & ~REGISTERED & ~known) != 0
        if self._config.mkeys:
            layout = is_layout(self._config, self.wqe.operation.completion)
            odd = Mux(layout, access[4:] != 0, odd)
        bad = grants & (odd | (remote & ~access[0]))
        if not self._config.windows:
            return bad
        return Mux(self.wqe.operation.bind, (access & ~BOUND & ~known) != 0, bad)

    def _flushes(self) -> Value:
        """The flags of FLUSH that may be asked for."""
        if not self._config.placement:
            return Const(0, 32)
        flags = Access.FLUSH_GLOBAL
        if self._config.persistence:
            flags |= Access.FLUSH_PERSISTENT
        return Const(int(flags), 32) & self.cfg.placement.replicate(32)

    def _layout(self, m: Module, refused: Signal) -> None:
        """An indirect key gets a layout."""
        m.submodules.layout = layout = RequestLayout(config=self._config)
        connect(m, layout.lines, flipped(self.lines))
        m.d.comb += [
            layout.wqe.eq(self.wqe),
            layout.destination.eq(self.destination),
            layout.cfg.eq(self.cfg),
            layout.line.eq(self.line),
            layout.port.req.ready.eq(self.port.req.ready),
            layout.port.rsp.valid.eq(self.port.rsp.valid),
            layout.port.rsp.payload.eq(self.port.rsp.payload),
            self.layout.eq(layout.entry),
        ]
        # LAYOUT: has the layout set; ends when that is done or refused.
        with m.State("LAYOUT"):
            m.d.comb += [
                layout.start.eq(1),
                self.port.req.valid.eq(layout.port.req.valid),
                self.port.req.payload.eq(layout.port.req.payload),
            ]
            with m.If(layout.done):
                m.d.sync += refused.eq(~layout.good)
                m.next = "DONE"

    def _request(self, m: Module, grants: Value) -> None:
        """What is asked of the owner of the keys for LOCAL_INV and, if it ``grants`` rights, for
        REG_MR."""
        named, request = self._operands.reg, self.port.req.payload
        m.d.comb += [
            request.register.eq(grants),
            request.function.eq(self.cfg.function),
            request.pd.eq(self.cfg.pd),
            request.key.eq(Mux(grants, named.key, ex(self.wqe).invalidate_rkey)),
            request.mrn.eq(named.mrn),
            request.access.eq(named.access[:4]),
        ]
        if self._config.placement:
            m.d.comb += request.flush.eq(named.access[FLUSH_AT:])

    def _window(self, m: Module, grants: Value) -> None:
        """What BIND_MW asks for instead, with the same function, PD and access. Its own fields are
        not looked at for LOCAL_INV and REG_MR."""
        named, request, bind = self._operands.bind, self.port.req.payload, self.wqe.operation.bind
        m.d.comb += [
            request.register.eq(grants & ~bind),
            request.bind.eq(bind),
            request.lkey.eq(named.lkey),
            request.va.eq(named.addr),
            request.length.eq(named.length),
            request.zero_based.eq((named.access & int(Access.ZERO_BASED)) != 0),
            request.qp.eq(self.qp),
        ]
        with m.If(bind):
            m.d.comb += request.key.eq(named.rkey)
