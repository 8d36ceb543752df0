"""Queue pairs."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any

from hdl.abi.enums import QpAttrMask, QpState, QpType
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import PD as GuestPD
from sim.guest.verbs import QP as GuestQP
from sim.guest.verbs import QPInitAttr as GuestQPInitAttr
from sim.programs.cards import Card
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.absent import refusing
from sim.programs.pyverbs.base import PyverbsCM, ask, show
from sim.programs.pyverbs.mp_wr import IBV_QP_INIT_ATTR_MP_WR, asked
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError
from sim.programs.pyverbs.qp_attr import QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from sim.programs.pyverbs.utils import qp_state_to_str, qp_type_to_str
from sim.programs.pyverbs.wr import SGE, DataBuffer, RecvWR, SendWR, chain, request, window_access

__all__ = [
    "ECE",
    "QP",
    "DataBuffer",
    "QPAttr",
    "QPCap",
    "QPEx",
    "QPInitAttr",
    "QPInitAttrEx",
]

ECE: Any = refusing("ECE")

_INIT = ("STATE", "PKEY_INDEX", "PORT", "ACCESS_FLAGS")
_UNRELIABLE_RTR = ("STATE", "AV", "PATH_MTU", "DEST_QPN", "RQ_PSN")
_RELIABLE_RTR = (*_UNRELIABLE_RTR, "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER")
_RELIABLE_RTS = ("STATE", "SQ_PSN", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC")
_TARGET_RTS = ("STATE", "SQ_PSN", "TIMEOUT")
_DYNAMIC_RTR = ("STATE", "AV", "PATH_MTU", "MIN_RNR_TIMER")
_INIT_STATE, _RTR, _RTS = enums.IBV_QPS_INIT, enums.IBV_QPS_RTR, enums.IBV_QPS_RTS
#: Attributes that each step sets, by the type of the queue pair.
_STEPS: dict[int, dict[int, tuple[str, ...]]] = {
    enums.IBV_QPT_RC: {_INIT_STATE: _INIT, _RTR: _RELIABLE_RTR, _RTS: _RELIABLE_RTS},
    enums.IBV_QPT_XRC_SEND: {_INIT_STATE: _INIT, _RTR: _UNRELIABLE_RTR, _RTS: _RELIABLE_RTS},
    enums.IBV_QPT_XRC_RECV: {_INIT_STATE: _INIT, _RTR: _RELIABLE_RTR, _RTS: _TARGET_RTS},
    enums.IBV_QPT_UC: {_INIT_STATE: _INIT, _RTR: _UNRELIABLE_RTR, _RTS: ("STATE", "SQ_PSN")},
    enums.IBV_QPT_UD: {
        _INIT_STATE: ("STATE", "PKEY_INDEX", "PORT", "QKEY"),
        _RTR: ("STATE",),
        _RTS: ("STATE", "SQ_PSN"),
    },
    QpType.DCI: {_INIT_STATE: _INIT[:-1], _RTR: ("STATE", "PATH_MTU"), _RTS: _RELIABLE_RTS},
    QpType.DCT: {_INIT_STATE: _INIT, _RTR: _DYNAMIC_RTR},
}
#: Types that verbs do not name.
_BEYOND = (QpType.DCI, QpType.DCT)
#: What libibverbs calls FLUSH and TSO, of which a card may have none.
_TSO = enums.IBV_QP_EX_WITH_TSO


def mask_of(kind: int, state: int) -> int:
    """The attributes that the step to a state sets, of a queue pair of the driver's type ``kind``;
    PyverbsRDMAError(EINVAL) for a state that it does not have."""
    found = 0
    if state not in _STEPS[kind]:
        raise PyverbsRDMAError("Failed to modify QP state", errno.EINVAL)
    for name in _STEPS[kind][state]:
        found |= getattr(enums, f"IBV_QP_{name}")
    return found


class QP(PyverbsCM):
    """A queue pair of a PD, or with ``QPInitAttrEx`` of a context.

    With ``qp_attr`` one with connections goes to INIT, and one for datagrams to RTS.
    """

    rank = 0

    def __init__(
        self, creator: Any, init_attr: QPInitAttr | QPInitAttrEx, qp_attr: QPAttr | None = None
    ):
        super().__init__()
        self.card: Card = creator.card
        #: The domain of an XRC target, which has no PD.
        self.xrcd: Any = None
        self.pd: Any = creator
        if isinstance(init_attr, QPInitAttrEx):
            self.pd, self.xrcd = init_attr.pd, init_attr.xrcd
        self.init = init_attr
        refused = isinstance(init_attr, QPInitAttrEx) and init_attr.refused
        #: The driver's type.
        self.kind = self._kind_of(init_attr)
        if self.kind is None or refused:
            raise PyverbsRDMAError("Failed to create QP", errno.EOPNOTSUPP)
        self.scq, self.rcq, self.srq = init_attr.send_cq, init_attr.recv_cq, init_attr.srq
        self.guest: GuestQP = ask(self.card, self._create(init_attr), "Failed to create QP")
        self.qp_type, self.qp_num = init_attr.qp_type, self.guest.qp_num
        self.card.inboxes.made("qp", self.qp_num, (self.pd or self.xrcd).context)
        self._opened(self.pd, self.xrcd, creator, self.scq, self.rcq, self.srq)
        if qp_attr is not None:
            datagrams = self.qp_type == enums.IBV_QPT_UD
            (self.to_rts if datagrams else self.to_init)(qp_attr)

    def _kind_of(self, init: QPInitAttr | QPInitAttrEx) -> QpType | None:
        """The driver's type of what is to be made; None if there is none."""
        named = init.qp_type in _STEPS and init.qp_type not in _BEYOND
        return QpType(init.qp_type) if named else None

    def _shaped(self, attr: GuestQPInitAttr) -> GuestQPInitAttr:
        """What the driver makes it from, if it is of a type that verbs do not name."""
        return attr

    async def _create(self, init: QPInitAttr | QPInitAttrEx) -> GuestQP:
        limits = self.card.context.query_device()
        cap = init.cap
        owner = self.xrcd if init.qp_type == enums.IBV_QPT_XRC_RECV else self.pd
        if owner is None or max(cap.max_send_wr, cap.max_recv_wr) > limits.max_qp_wr:
            raise RdmaError(errno.EINVAL, "No PD or XRC domain, or too many requests")
        pieces = None
        if isinstance(init, QPInitAttrEx):
            pieces = asked(init, IBV_QP_INIT_ATTR_MP_WR, "Failed to create QP")
        assert self.kind is not None, "what has no type is refused before"
        attr = GuestQPInitAttr(
            self.kind,
            getattr(self.scq, "guest", None),
            getattr(self.rcq, "guest", None),
            cap.to_guest(),
            init.sq_sig_all,
            getattr(self.srq, "guest", None),
            xrcd=getattr(self.xrcd, "guest", None),
            mp_wr=pieces,
        )
        nobodys = GuestPD(self.card.context, 0)  # a target's, which means nothing
        pd = nobodys if owner is self.xrcd else self.pd.guest
        return await GuestQP.create(pd, self._shaped(attr))

    @property
    def qp_state(self) -> int:
        """Its state as it was last set or queried."""
        return int(self.guest.state)

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Sets the attributes that the mask names."""

        async def modify() -> None:
            attr = qp_attr.to_guest(comp_mask, self.card)
            await self.guest.modify(attr, QpAttrMask(comp_mask))
            if self.guest.state == QpState.RESET:
                await self._forget()

        ask(self.card, modify(), "Failed to modify QP state")

    def _step(self, qp_attr: QPAttr, state: int) -> None:
        qp_attr.qp_state = state
        assert self.kind is not None, "what has no type is refused before"
        self.modify(qp_attr, mask_of(self.kind, state))

    def to_init(self, qp_attr: QPAttr) -> None:
        """To INIT."""
        self._step(qp_attr, enums.IBV_QPS_INIT)

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """To RTR, through INIT if need be."""
        if self.qp_state != enums.IBV_QPS_INIT:
            self.to_init(qp_attr)
        self._step(qp_attr, enums.IBV_QPS_RTR)

    def to_rts(self, qp_attr: QPAttr) -> None:
        """To RTS, through INIT and RTR if need be."""
        if self.qp_state != enums.IBV_QPS_RTR:
            self.to_rtr(qp_attr)
        self._step(qp_attr, enums.IBV_QPS_RTS)

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """Its attributes as the card has them, and those of its creation."""
        work = self.guest.query(QpAttrMask(attr_mask & ((enums.IBV_QP_DEST_QPN << 1) - 1)))
        found = QPAttr.of(ask(self.card, work, "Failed to query QP"))
        init = self.init
        attr = QPInitAttr(
            init.qp_type, None, self.scq, self.rcq, self.srq, init.cap, init.sq_sig_all
        )
        return found, attr

    def query_data_in_order(self, op: int, flags: int = 0) -> int:
        """0: the card does not promise that bytes of a message are written in order."""
        return 0

    def query_ece(self) -> Any:
        """The card has no extended connection establishment: EOPNOTSUPP."""
        raise PyverbsRDMAError("Failed to query ECE", errno.EOPNOTSUPP)

    def set_ece(self, ece: Any) -> None:
        """The same."""
        raise PyverbsRDMAError("Failed to set ECE", errno.EOPNOTSUPP)

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Posts a send request, and those behind it."""
        requests = chain(wr)
        work = self.guest.post_send([one.to_guest() for one in requests])
        ask(self.card, work, "Failed to post send")
        for one in requests:
            if one.bound is not None:
                one.bound.guest.key = one.rkey

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Posts a receive request, and those behind it."""
        work = self.guest.post_recv([one.to_guest() for one in chain(wr)])
        ask(self.card, work, "Failed to post recv")

    def bind_mw(self, mw: Any, mw_bind: Any) -> None:
        """Binds a window of type 1; ``mw.rkey`` is its new key."""
        wr = SendWR(mw_bind.wr_id, enums.IBV_WR_BIND_MW, send_flags=mw_bind.send_flags)
        wr.set_bind_wr(mw, mw_bind.info)
        ask(self.card, self.guest.post_send([wr.to_guest()]), "Failed to Bind MW")
        mw.guest.key = wr.rkey

    def attach_mcast(self, gid: Any, lid: int) -> None:
        """Makes it a member of a multicast group."""
        ask(self.card, self.guest.attach_mcast(gid.raw), "Failed to attach QP to multicast group")

    def detach_mcast(self, gid: Any, lid: int) -> None:
        """Ends its membership."""
        work = self.guest.detach_mcast(gid.raw)
        ask(self.card, work, "Failed to detach QP from multicast group")

    async def _forget(self) -> None:
        """Takes its completions out of its queues: after a reset nobody finds them."""
        for cq in {self.scq, self.rcq} - {None}:
            await cq.forget(self.qp_num)

    def _destroy(self) -> None:
        async def close() -> None:
            await self.guest.close()
            await self._forget()

        ask(self.card, close(), "Failed to destroy QP")
        self.card.inboxes.gone("qp", self.qp_num)

    def __str__(self) -> str:
        return show(
            QP_type=qp_type_to_str(self.qp_type),
            number=self.qp_num,
            state=qp_state_to_str(self.qp_state),
        )


class QPEx(QP):
    """A queue pair whose requests are built call by call, between wr_start and wr_complete.

    Requests of a batch are posted at its end. ``wr_id`` and ``wr_flags`` hold for the next one.
    """

    def __init__(self, creator: Any, init_attr: QPInitAttrEx, qp_attr: QPAttr | None = None):
        self.comp_mask = init_attr.comp_mask
        self.ind_table = init_attr.ind_table
        self.wr_id = self.wr_flags = 0
        self._batch: list[Any] = []
        if init_attr.send_ops_flags & _TSO:
            PyverbsCM.__init__(self)
            raise PyverbsRDMAError("Failed to create QP", errno.EOPNOTSUPP)
        super().__init__(creator, init_attr, qp_attr)

    def wr_start(self) -> None:
        """Begins a batch."""
        self._batch = []

    def wr_complete(self) -> None:
        """Posts the batch; nothing of it if one of its requests is bad."""
        batch, self._batch = self._batch, []
        work = self.guest.post_batch([one.to_guest() for one in batch])
        ask(self.card, work, "Failed to complete work requests")
        self._posted(batch)

    def _posted(self, batch: list[Any]) -> None:
        """What follows from a batch that was posted: windows have their keys."""
        for one in batch:
            if one.bound is not None:
                one.bound[0].guest.key = one.bound[1]

    def wr_abort(self) -> None:
        """Forgets the batch."""
        self._batch = []

    def _begin(self, opcode: int, imm: int = 0, remote: Any = None) -> _Built:
        self._batch.append(_Built(opcode, self.wr_id, self.wr_flags, imm, remote))
        return self._batch[-1]

    def wr_send(self) -> None:
        """SEND."""
        self._begin(enums.IBV_WR_SEND)

    def wr_send_imm(self, imm_data: int) -> None:
        """SEND with immediate, which is a number."""
        self._begin(enums.IBV_WR_SEND_WITH_IMM, socket.htonl(imm_data))

    def wr_send_inv(self, invalidate_rkey: int) -> None:
        """SEND that invalidates a key of the peer."""
        self._begin(enums.IBV_WR_SEND_WITH_INV, invalidate_rkey)

    def wr_rdma_write(self, rkey: int, remote_addr: int) -> None:
        """WRITE."""
        self._begin(enums.IBV_WR_RDMA_WRITE, 0, ("set_wr_rdma", (rkey, remote_addr)))

    def wr_rdma_write_imm(self, rkey: int, remote_addr: int, imm_data: int) -> None:
        """WRITE with immediate, which is a number."""
        remote = ("set_wr_rdma", (rkey, remote_addr))
        self._begin(enums.IBV_WR_RDMA_WRITE_WITH_IMM, socket.htonl(imm_data), remote)

    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None:
        """READ."""
        self._begin(enums.IBV_WR_RDMA_READ, 0, ("set_wr_rdma", (rkey, remote_addr)))

    def wr_atomic_cmp_swp(self, rkey: int, remote_addr: int, compare: int, swap: int) -> None:
        """Compare and swap."""
        remote = ("set_wr_atomic", (rkey, remote_addr, compare, swap))
        self._begin(enums.IBV_WR_ATOMIC_CMP_AND_SWP, 0, remote)

    def wr_atomic_fetch_add(self, rkey: int, remote_addr: int, add: int) -> None:
        """Fetch and add."""
        remote = ("set_wr_atomic", (rkey, remote_addr, add, 0))
        self._begin(enums.IBV_WR_ATOMIC_FETCH_AND_ADD, 0, remote)

    def wr_atomic_write(self, rkey: int, remote_addr: int, atomic_wr: bytes) -> None:
        """ATOMIC WRITE of 8 bytes."""
        remote = ("set_wr_atomic_write", (rkey, remote_addr, bytes(atomic_wr)))
        self._begin(enums.IBV_WR_ATOMIC_WRITE, 0, remote)

    def wr_flush(self, rkey: int, remote_addr: int, length: int, type: int, level: int) -> None:
        """FLUSH of a range or a region of the peer."""
        remote = ("set_wr_flush", (rkey, remote_addr, length, type, level))
        self._begin(enums.IBV_WR_FLUSH, 0, remote)

    def wr_local_inv(self, invalidate_rkey: int) -> None:
        """Invalidates a key."""
        self._begin(enums.IBV_WR_LOCAL_INV, invalidate_rkey)

    def wr_bind_mw(self, mw: Any, rkey: int, bind_info: Any) -> None:
        """Binds a window of type 2, which gets the key ``rkey``."""
        place = bind_info.mr.lkey, bind_info.addr, bind_info.length
        access = window_access(bind_info.mw_access_flags)
        remote = ("set_wr_bind", (*place, access, rkey))
        self._begin(enums.IBV_WR_BIND_MW, 0, remote).bound = (mw, rkey)

    def wr_set_ud_addr(self, ah: Any, remote_qpn: int, remote_rkey: int) -> None:
        """Where the last datagram goes."""
        self._batch[-1].remote = ("set_wr_ud", (ah.guest, remote_qpn, remote_rkey))

    def wr_send_tso(self, hdr: int, hdr_sz: int, mss: int) -> None:
        """The card cuts nothing into segments: EOPNOTSUPP."""
        raise PyverbsRDMAError("Failed to send TSO", errno.EOPNOTSUPP)

    def wr_set_xrc_srqn(self, remote_srqn: int) -> None:
        """The shared receive queue that the last request names."""
        self._batch[-1].srq_num = remote_srqn

    def wr_set_sge(self, sge: SGE) -> None:
        """The bytes of the last request."""
        self._batch[-1].sg = [sge]

    def wr_set_sge_list(self, sg_list: Sequence[SGE]) -> None:
        """The same, in pieces."""
        self._batch[-1].sg = list(sg_list)

    def wr_set_inline_data(self, buff: DataBuffer) -> None:
        """The same, copied now."""
        self.wr_set_inline_data_list([buff])

    def wr_set_inline_data_list(self, buff_list: Sequence[DataBuffer]) -> None:
        """The same, in pieces."""
        self._batch[-1].sg = [SGE(one.addr, one.length, 0) for one in buff_list]
        self._batch[-1].flags |= enums.IBV_SEND_INLINE


class _Built:
    """A request of a batch."""

    def __init__(self, opcode: int, wr_id: int, flags: int, imm: int, remote: Any):
        self.opcode, self.wr_id, self.flags, self.imm = opcode, wr_id, flags, imm
        self.remote, self.sg = remote, list[SGE]()
        self.bound: tuple[Any, int] | None = None
        self.srq_num: int | None = None
        #: Of an initiator of DC: where it goes, and of which stream it is.
        self.destination: tuple[int, int] | None = None

    def to_guest(self) -> Any:
        """As the driver takes it."""
        wr = request(self.opcode, self.wr_id, self.flags, self.sg, self.imm, self.remote)
        if self.srq_num is not None:
            wr.set_wr_xrc_srqn(self.srq_num)
        if self.destination is not None:
            wr.set_wr_dc(*self.destination)
        return wr
