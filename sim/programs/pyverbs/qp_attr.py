"""Capacities and attributes of queue pairs."""

from __future__ import annotations

from typing import Any

from hdl.abi.enums import Access, MigState, QpState
from sim.guest.verbs import QPAttr as GuestQPAttr
from sim.guest.verbs import QPCap as GuestQPCap
from sim.programs.cards import Card
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.addr import AHAttr, from_route, route_of
from sim.programs.pyverbs.base import PyverbsObject, show
from sim.programs.pyverbs.utils import names_of

__all__ = ["QPAttr", "QPCap", "QPInitAttr", "QPInitAttrEx"]

_CAPS = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")


class QPCap(PyverbsObject):
    """Capacities: requests, SGEs in one, inline bytes in one."""

    def __init__(
        self,
        max_send_wr: int = 1,
        max_recv_wr: int = 10,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
    ):
        super().__init__()
        self.max_send_wr, self.max_recv_wr = max_send_wr, max_recv_wr
        self.max_send_sge, self.max_recv_sge = max_send_sge, max_recv_sge
        self.max_inline_data = max_inline_data

    def to_guest(self) -> GuestQPCap:
        """As the driver takes them."""
        return GuestQPCap(**{name: getattr(self, name) for name in _CAPS})

    def __str__(self) -> str:
        return show(**{name: getattr(self, name) for name in _CAPS})


class _Init(PyverbsObject):
    """What both kinds of attributes for a creation have. The capacities are fields of it too."""

    def __init__(self, qp_type: int, queues: tuple[Any, Any, Any], cap: QPCap | None, sig: int):
        super().__init__()
        self.qp_type, self.sq_sig_all = qp_type, sig
        self.send_cq, self.recv_cq, self.srq = queues
        self.cap = cap or QPCap(0, 0, 0, 0)

    @property
    def cap(self) -> QPCap:
        """A copy of the capacities."""
        return QPCap(**{name: getattr(self, name) for name in _CAPS})

    @cap.setter
    def cap(self, val: QPCap) -> None:
        for name in _CAPS:
            setattr(self, name, getattr(val, name))

    max_send_wr: int
    max_recv_wr: int
    max_send_sge: int
    max_recv_sge: int
    max_inline_data: int

    def __str__(self) -> str:
        return show(qp_type=self.qp_type, sq_sig_all=self.sq_sig_all) + str(self.cap)


class QPInitAttr(_Init):
    """What a queue pair of a PD is made from."""

    def __init__(
        self,
        qp_type: int = enums.IBV_QPT_UD,
        qp_context: Any = None,
        scq: Any = None,
        rcq: Any = None,
        srq: Any = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 1,
    ):
        super().__init__(qp_type, (scq, rcq, srq), cap, sq_sig_all)
        self.qp_context = qp_context


#: Arguments of ``QPInitAttrEx`` that have a default, in their order.
_MORE: dict[str, Any] = {
    **{"qp_context": None, "scq": None, "rcq": None, "srq": None, "cap": None, "sq_sig_all": 0},
    **{"comp_mask": 0, "pd": None, "xrcd": None, "create_flags": 0, "max_tso_header": 0},
    **{"source_qpn": 0, "hash_conf": None, "ind_table": None, "send_ops_flags": 0},
    **{"mp_wr": None},
}


class QPInitAttrEx(_Init):
    """What a queue pair of a context is made from; ``comp_mask`` says which of the rest count."""

    def __init__(self, qp_type: int = enums.IBV_QPT_UD, *values: Any, **named: Any):
        given = _MORE | dict(zip(_MORE, values, strict=False))
        if unknown := named.keys() - _MORE.keys():
            raise TypeError(f"QPInitAttrEx takes no {', '.join(sorted(unknown))}")
        given |= named
        queues = given["scq"], given["rcq"], given["srq"]
        super().__init__(qp_type, queues, given["cap"], given["sq_sig_all"])
        self.qp_context, self.comp_mask = given["qp_context"], given["comp_mask"]
        self.pd, self.xrcd = given["pd"], given["xrcd"]
        self.create_flags, self.source_qpn = given["create_flags"], given["source_qpn"]
        self.max_tso_header, self.send_ops_flags = given["max_tso_header"], given["send_ops_flags"]
        self.hash_conf, self.ind_table = given["hash_conf"], given["ind_table"]
        self.mp_wr = given["mp_wr"]

    def mask_to_str(self, mask: int) -> str:
        """The names of what a mask says."""
        return names_of("ibv_qp_init_attr_mask", "IBV_QP_INIT_ATTR_", mask)

    def flags_to_str(self, flags: int) -> str:
        """The names of flags of creation."""
        return names_of("ibv_qp_create_flags", "IBV_QP_CREATE_", flags)

    @property
    def refused(self) -> bool:
        """Whether it asks for something that this card does not have."""
        return bool(self.create_flags or self.max_tso_header or self.ind_table or self.hash_conf)


#: Fields that are numbers here and in the driver.
_NUMBERS = (
    *("qkey", "rq_psn", "sq_psn", "dest_qp_num", "pkey_index", "alt_pkey_index"),
    *("en_sqd_async_notify", "sq_draining", "max_rd_atomic", "max_dest_rd_atomic"),
    *("min_rnr_timer", "port_num", "timeout", "retry_cnt", "rnr_retry", "alt_port_num"),
    *("alt_timeout", "rate_limit"),
)


class QPAttr(PyverbsObject):
    """Attributes of a queue pair."""

    def __init__(
        self,
        qp_state: int = enums.IBV_QPS_INIT,
        cur_qp_state: int = enums.IBV_QPS_RESET,
        port_num: int = 1,
        path_mtu: int = enums.IBV_MTU_1024,
    ):
        super().__init__()
        for name in _NUMBERS:
            setattr(self, name, 0)
        self.qp_state, self.cur_qp_state = qp_state, cur_qp_state
        self.port_num, self.path_mtu = port_num, path_mtu
        self.path_mig_state: int = enums.IBV_MIG_MIGRATED
        self.qp_access_flags = 0
        self.cap = QPCap()
        self.ah_attr, self.alt_ah_attr = AHAttr(), AHAttr()

    def to_guest(self, mask: int, card: Card) -> GuestQPAttr:
        """As the driver takes them; RdmaError for a route that leads nowhere."""
        attr = GuestQPAttr(QpState(self.qp_state), QpState(self.cur_qp_state))
        for name in _NUMBERS:
            setattr(attr, name, getattr(self, name))
        attr.path_mtu = self.path_mtu  # type: ignore[assignment]
        attr.path_mig_state = MigState(self.path_mig_state)
        attr.qp_access_flags = Access(self.qp_access_flags)
        if mask & enums.IBV_QP_CAP:
            attr.cap = self.cap.to_guest()
        if mask & enums.IBV_QP_AV:
            attr.ah_attr = route_of(self.ah_attr, card)
        return attr

    @classmethod
    def of(cls, attr: GuestQPAttr) -> QPAttr:
        """Those that the driver has."""
        ours = cls(int(attr.qp_state), int(attr.cur_qp_state), path_mtu=int(attr.path_mtu))
        for name in _NUMBERS:
            setattr(ours, name, getattr(attr, name))
        ours.path_mig_state = int(attr.path_mig_state)
        ours.qp_access_flags = int(attr.qp_access_flags)
        ours.cap = QPCap(**{name: getattr(attr.cap, name) for name in _CAPS})
        ours.ah_attr = from_route(attr.ah_attr)
        ours.alt_ah_attr = from_route(attr.alt_ah_attr)
        return ours

    def __str__(self) -> str:
        return show(
            qp_state=self.qp_state,
            path_mtu=self.path_mtu,
            **{name: getattr(self, name) for name in _NUMBERS},
        )
