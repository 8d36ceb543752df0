"""Work requests that the requester executes by itself: LOCAL_INV, REG_MR and BIND_MW."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import OPTIONAL_ACCESS, Access, WcStatus
from hdl.config import NicConfig
from hdl.ports.jobs import Destination, SendWqe
from hdl.ports.numbers import QpNumber
from hdl.ports.regions import RegionKeyPort
from hdl.ports.rows import QpCfg

__all__ = ["BOUND", "REGISTERED", "RequestKeys"]

#: Access flags that REG_MR may ask for: the rights, and those that may be ignored.
REGISTERED = OPTIONAL_ACCESS | 0xF
#: Those that BIND_MW may ask for.
BOUND = OPTIONAL_ACCESS | int(
    Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.ZERO_BASED
)


class RequestKeys(wiring.Component):
    """Changes the state of a memory region or window for a work request, while its QP has the turn.

    Spec: IBTA vol 1, 10.6.3, 10.8.3.3 (order), 11.4.4; virtio-rdma VR-5.18, VR-5.20, E-22.
    LOCAL_INV begins when all WQEs before it have ended (``RequestAdmission`` sees to that, as
    Soft-RoCE does), and here it waits until the checks of what they received are over (``settle``).
    REG_MR and BIND_MW begin when it is their turn; the WQEs behind them find the key valid, as none
    of them is looked at before this one is done. With FENCE they wait for ``settle``, too: the READ
    before may have invalidated the same region.

    Members: ``start`` is held until ``done``, a cycle, with ``status``; ``wqe``, ``cfg``, ``qp``
    meanwhile, and ``destination``, where the fields of BIND_MW are that no other WQE has.
    ``settle`` is held until ``settled``: all that the receive side has begun before is decided.
    ``port``: the owner of the regions' keys.
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
        )

    def elaborate(self, platform):
        m = Module()
        wqe, refused = self.wqe, Signal()
        register = ~wqe.operation.invalidate  # or binds
        bad = self._bad_access(register)
        self._request(m, register)
        failure = Mux(register, WcStatus.MW_BIND_ERR.value, WcStatus.LOC_PROT_ERR.value)
        m.d.comb += self.status.eq(Mux(refused, failure, WcStatus.SUCCESS.value))
        if self._config.windows:
            self._window(m, register)
        with m.FSM(name="keys"):
            # IDLE: nothing is executed; ``start`` ends it.
            with m.State("IDLE"):
                m.d.sync += refused.eq(bad)
                with m.If(self.start):
                    m.next = "ASK"
                    with m.If(~register | wqe.fence):
                        m.next = "SETTLE"
            # SETTLE: waits for the receive side to decide what came before; ends when it has.
            with m.State("SETTLE"):
                m.d.comb += self.settle.eq(1)
                with m.If(self.settled):
                    m.next = "ASK"
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

    def _bad_access(self, register: Value) -> Value:
        """Whether REG_MR or BIND_MW asks for rights that it may not ask for."""
        access = self.wqe.rkey  # wr.reg and wr.bind lie where wr.rdma does (VR-4.3)
        remote = (access & int(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) != 0
        # Who lets peers write must be able to write, too.
        bad = register & (((access & ~REGISTERED) != 0) | (remote & ~access[0]))
        if not self._config.windows:
            return bad
        return Mux(self.wqe.operation.bind, (access & ~BOUND) != 0, bad)

    def _request(self, m: Module, register: Value) -> None:
        """What is asked of the owner of the keys. ``register``: it is no LOCAL_INV."""
        wqe, request = self.wqe, self.port.req.payload
        # wr.reg: mrn, key and access in the fields of wr.rdma.
        mrn, key, access = wqe.remote_addr[:32], wqe.remote_addr[32:], wqe.rkey
        m.d.comb += [
            request.register.eq(register),
            request.function.eq(self.cfg.function),
            request.pd.eq(self.cfg.pd),
            request.key.eq(Mux(register, key, wqe.imm)),
            request.mrn.eq(mrn),
            request.access.eq(access[:4]),
        ]

    def _window(self, m: Module, register: Value) -> None:
        """What BIND_MW has beside that: wr.bind lies where wr.rdma and the beginning of wr.ud.av
        do. What no other change has is not looked at in others."""
        wqe, request, there = self.wqe, self.port.req.payload, self.destination
        bind = wqe.operation.bind
        m.d.comb += [
            request.register.eq(register & ~bind),
            request.bind.eq(bind),
            request.lkey.eq(there.pd),
            request.va.eq(wqe.remote_addr),
            request.length.eq(
                Cat(there.flow_label, there.traffic_class, there.sl, there.dgid[:32])
            ),
            request.zero_based.eq((wqe.rkey & int(Access.ZERO_BASED)) != 0),
            request.qp.eq(self.qp),
        ]
        with m.If(bind):
            m.d.comb += request.key.eq(there.dgid[32:64])
