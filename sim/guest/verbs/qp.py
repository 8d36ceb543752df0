"""Queue pairs: creation, states, posting.

Spec: virtio-rdma VR-3.21 to VR-3.31, VR-4.1 to VR-4.6.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import (
    ControlCommand,
    ExtensionCommand,
    QpAttrMask,
    QpState,
    QpType,
    SendFlags,
    SigType,
    WrOpcode,
)
from hdl.ports.counter_names import RDMA_CORE_NAMES
from sim.guest.driver.errors import CommandError, DeviceError, RdmaError
from sim.guest.verbs.attr import QPAttr, QPCap, QPInitAttr
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.gid import gid_bytes
from sim.guest.verbs.mp_wr import check_cq, usable
from sim.guest.verbs.work_queue import WorkQueue
from sim.guest.verbs.wr import LAYOUTS, RecvWR, SendWR

_INIT = QpAttrMask.STATE | QpAttrMask.PKEY_INDEX | QpAttrMask.PORT
_CONNECTED_INIT = _INIT | QpAttrMask.ACCESS_FLAGS
_DATAGRAM_INIT = _INIT | QpAttrMask.QKEY
_GSI_INIT = QpAttrMask.STATE | QpAttrMask.PKEY_INDEX | QpAttrMask.QKEY
_UC_RTR = (
    QpAttrMask.STATE | QpAttrMask.AV | QpAttrMask.PATH_MTU | QpAttrMask.DEST_QPN | QpAttrMask.RQ_PSN
)
_RC_RTR = _UC_RTR | QpAttrMask.MAX_DEST_RD_ATOMIC | QpAttrMask.MIN_RNR_TIMER
_RTS = QpAttrMask.STATE | QpAttrMask.SQ_PSN
_RC_RTS = (
    _RTS
    | QpAttrMask.TIMEOUT
    | QpAttrMask.RETRY_CNT
    | QpAttrMask.RNR_RETRY
    | QpAttrMask.MAX_QP_RD_ATOMIC
)
#: Attributes that the steps RESET -> INIT -> RTR -> RTS set, for each type.
_STEPS: dict[QpType, dict[QpState, QpAttrMask]] = {
    QpType.RC: {QpState.INIT: _CONNECTED_INIT, QpState.RTR: _RC_RTR, QpState.RTS: _RC_RTS},
    QpType.XRC_INI: {QpState.INIT: _CONNECTED_INIT, QpState.RTR: _UC_RTR, QpState.RTS: _RC_RTS},
    QpType.XRC_TGT: {
        QpState.INIT: _CONNECTED_INIT,
        QpState.RTR: _RC_RTR,
        QpState.RTS: _RTS | QpAttrMask.TIMEOUT,
    },
    QpType.DCI: {
        QpState.INIT: _INIT,
        QpState.RTR: QpAttrMask.STATE | QpAttrMask.PATH_MTU,
        QpState.RTS: _RC_RTS,
    },
    QpType.DCT: {
        QpState.INIT: _CONNECTED_INIT,
        QpState.RTR: QpAttrMask.STATE
        | QpAttrMask.AV
        | QpAttrMask.PATH_MTU
        | QpAttrMask.MIN_RNR_TIMER,
    },
    QpType.UC: {QpState.INIT: _CONNECTED_INIT, QpState.RTR: _UC_RTR, QpState.RTS: _RTS},
    QpType.UD: {QpState.INIT: _DATAGRAM_INIT, QpState.RTR: QpAttrMask.STATE, QpState.RTS: _RTS},
    QpType.GSI: {QpState.INIT: _GSI_INIT, QpState.RTR: QpAttrMask.STATE, QpState.RTS: _RTS},
}

_INITIATORS = (QpType.XRC_INI, QpType.DCI)
_TARGETS = (QpType.XRC_TGT, QpType.DCT)
#: Types without a receive queue of their own.
_ONE_SIDED = (*_INITIATORS, *_TARGETS)
_EVERYTHING = QpAttrMask((QpAttrMask.DEST_QPN << 1) - 1)
_CAN_SEND = (QpState.RTS, QpState.SQD, QpState.SQE, QpState.ERR)

#: The way to RTS, and the state at its start.
_WAY = (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS)


class QP(Resource):
    """A queue pair. ``state`` is the last one set or queried here.

    With ``srq`` its receive requests come from there, and its receive queue is not used.
    """

    def __init__(self, pd: PD, init: QPInitAttr, qpn: int):
        self.pd, self.ctx = pd, pd.ctx
        self.qp_type, self.qp_num = init.qp_type, qpn
        self.cap, self.srq, self.mp_wr = init.cap, init.srq, init.mp_wr
        self.state = QpState.RESET
        cap, ctx = init.cap, pd.ctx
        limits = self.ctx.query_device()
        sges = max(cap.max_send_sge, 2 if limits.max_memcpy_length else 0)
        if init.qp_type == QpType.RC:
            sges = max(sges, limits.max_mkey_entries)  # slots of a layout
        send_tail = max(abi.SGE.size * sges, cap.max_inline_data)
        receive_tail = abi.SGE.size * cap.max_recv_sge
        sizes = (abi.POST_SEND.size + send_tail, abi.POST_RECV.size + receive_tail)
        self.sq = WorkQueue(ctx, f"SQ {qpn:#x}", cap.max_send_wr, sizes[0], init.room, pushes=True)
        self.rq = WorkQueue(ctx, f"RQ {qpn:#x}", cap.max_recv_wr, sizes[1], init.room)

    @classmethod
    async def create(cls, pd: PD, init: QPInitAttr, attr: QPAttr | None = None) -> QP:
        """Creates a queue pair and enables its virtqueues; with ``attr`` goes to RTS. Of an XRC
        target ``pd`` says whose it is, and nothing else.

        Raises RdmaError: EINVAL for capacities that the device or its virtqueues refuse, and for
        ``mp_wr`` with an SRQ or a CQ without offsets, EOPNOTSUPP for ``mp_wr``, ENOMEM.
        """
        initiator, target = init.qp_type in _INITIATORS, init.qp_type == QpType.XRC_TGT
        dynamic = init.qp_type == QpType.DCT
        if dynamic and (init.rcq is None or init.srq is None):
            raise RdmaError(errno.EINVAL, "A target of DC needs a receive CQ and an SRQ")
        if not (target or dynamic) and (init.scq is None or (init.rcq is None and not initiator)):
            raise RdmaError(errno.EINVAL, "A queue pair needs a send and a receive CQ")
        if target and init.xrcd is None:
            raise RdmaError(errno.EINVAL, "An XRC target needs a domain")
        if target or dynamic:
            init = replace(init, scq=None, cap=QPCap(0, 0, 0, 0, 0))
        if initiator or target:
            init = replace(init, rcq=None, cap=replace(init.cap, max_recv_wr=0, max_recv_sge=0))
        if init.mp_wr is not None:
            if init.srq is not None:
                raise RdmaError(errno.EINVAL, "An SRQ has its own requests")
            init = replace(init, mp_wr=usable(pd.ctx, init.mp_wr))
        if init.mp_wr is not None or (init.srq is not None and init.srq.mp_wr is not None):
            check_cq(init.rcq)
        cap: QPCap = init.cap
        result = await pd.ctx.command(
            ControlCommand.CREATE_QP,
            pdn=0 if target else pd.pdn,
            qp_type=init.qp_type,
            sq_sig_type=SigType.ALL_WR if init.sq_sig_all else SigType.REQ_WR,
            max_send_wr=cap.max_send_wr,
            max_send_sge=cap.max_send_sge,
            send_cqn=init.scq.cqn if init.scq else 0,
            max_recv_wr=0 if init.srq else cap.max_recv_wr,
            max_recv_sge=cap.max_recv_sge,
            recv_cqn=init.rcq.cqn if init.rcq else 0,
            max_inline_data=cap.max_inline_data,
            srqn=init.srq.srqn if init.srq else 0,
            xrcdn=init.xrcd.xrcdn if init.xrcd else 0,
            dc_key=init.dc_key,
            **(init.streams.fields() if init.streams else {}),
            **(init.mp_wr.fields() if init.mp_wr else {}),
        )
        qp = cls(pd, init, result.qpn)
        try:
            await qp._set_up()
            if attr is not None:
                await qp.to_rts(attr)
        except BaseException:
            await qp.close()
            raise
        pd.ctx.qps[qp.qp_num] = qp
        return qp

    @property
    def _queues(self) -> tuple[WorkQueue, ...]:
        """The queues that it uses."""
        if self.qp_type in _TARGETS:
            return ()
        return (self.sq,) if self.srq or self.qp_type in _ONE_SIDED else (self.sq, self.rq)

    async def _set_up(self) -> None:
        config = self.ctx.device.config
        pair = abi.qp_index(self.qp_num, config.max_qp)
        if self.qp_num >> abi.QPN_BITS or pair >= config.max_qp:
            raise DeviceError(f"CREATE_QP returned QPN {self.qp_num:#x} of {config.max_qp} pairs")
        indices = (abi.sq_queue(pair, config.max_cq), abi.rq_queue(pair, config.max_cq))
        for queue, index in zip(self._queues, indices, strict=False):
            await queue.set_up(index)

    async def close(self) -> None:
        """Destroys the queue pair; outstanding requests get no completion (VR-3.31). CommandError
        while it is a member of a multicast group."""
        await self.ctx.command(ControlCommand.DESTROY_QP, qpn=self.qp_num)
        self.ctx.qps.pop(self.qp_num, None)
        for queue in self._queues:
            if hasattr(queue, "ring"):
                await queue.tear_down()
            queue.free()

    async def modify(self, attr: QPAttr, mask: QpAttrMask) -> None:
        """Sets the attributes that ``mask`` names.

        Going to RESET empties both queues: their requests get no completion.
        """
        await self.ctx.command(
            ControlCommand.MODIFY_QP, qpn=self.qp_num, attr_mask=mask, attrs=attr.to_abi()
        )
        if mask & QpAttrMask.STATE:
            self.state = QpState(attr.qp_state)
            if self.state == QpState.RESET:
                for queue in self._queues:
                    await queue.tear_down()
                await self._set_up()

    async def resize(self, max_send_wr: int, max_recv_wr: int) -> None:
        """Gives its queues other sizes, in any state; what they hold stays.

        RdmaError(EINVAL): a size below what is outstanding, or beyond the room for it.
        """
        sizes = (max_send_wr, max_recv_wr)
        for queue, size in zip(self._queues, sizes, strict=False):
            queue.check_resize(size)
        await self.ctx.command(
            ExtensionCommand.RESIZE_QP,
            qpn=self.qp_num,
            max_send_wr=max_send_wr,
            max_recv_wr=max_recv_wr,
        )
        for queue, size in zip(self._queues, sizes, strict=False):
            queue.resize(size)

    async def attach_mcast(self, gid: str | bytes) -> None:
        """Makes a UD queue pair a member of a multicast group, if it is none yet.

        CommandError: no address of a group, another type, too many groups or members.
        """
        await self.ctx.command(ExtensionCommand.ATTACH_MCAST, qpn=self.qp_num, gid=gid_bytes(gid))

    async def detach_mcast(self, gid: str | bytes) -> None:
        """Ends its membership; CommandError when it has none."""
        await self.ctx.command(ExtensionCommand.DETACH_MCAST, qpn=self.qp_num, gid=gid_bytes(gid))

    async def query(self, mask: QpAttrMask = _EVERYTHING) -> QPAttr:
        """The attributes as the device has them."""
        result = await self.ctx.command(ControlCommand.QUERY_QP, qpn=self.qp_num, attr_mask=mask)
        try:
            attr = QPAttr.from_abi(result.attr)
        except ValueError as error:
            raise DeviceError(f"QUERY_QP of {self.qp_num:#x}: {error}") from None
        self.state = attr.qp_state
        return attr

    async def hw_counters(self) -> dict[str, int]:
        """What the device has counted for this QP since its creation, by rdma-core's names.

        RdmaError(EOPNOTSUPP) when the device does not count.
        """
        counters = await self.ctx.device.qp_counters(self.qp_num)
        return {RDMA_CORE_NAMES.get(name, name): value for name, value in counters.items()}

    async def to_init(self, attr: QPAttr) -> None:
        """RESET -> INIT."""
        await self._walk(attr, QpState.INIT)

    async def to_rtr(self, attr: QPAttr) -> None:
        """To RTR, through INIT if need be. A refused step leaves the QP as it was."""
        await self._walk(attr, QpState.RTR)

    async def to_rts(self, attr: QPAttr) -> None:
        """To RTS, through INIT and RTR if need be. A refused step leaves the QP as it was."""
        await self._walk(attr, QpState.RTS)

    async def _walk(self, attr: QPAttr, target: QpState) -> None:
        way = _WAY[: _WAY.index(target) + 1]
        start = self.state if self.state in way[:-1] else QpState.RESET
        steps = way[way.index(start) + 1 :]
        before = await self.query() if start == QpState.INIT and len(steps) > 1 else None
        for state in steps:
            try:
                await self._step(attr, state)
            except CommandError:
                if state != steps[0]:
                    await self._go_back(before)
                raise

    async def _go_back(self, before: QPAttr | None) -> None:
        """Undo the first steps of a way: to RESET, or to INIT with ``before``'s attributes.

        No state but RESET has a way back, and RESET empties the queues: what was posted in INIT is
        posted again.
        """
        queues = self._queues
        posted = [queue.pending for queue in queues]
        await self.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
        if before is None:
            return
        await self._step(before, QpState.INIT)
        for queue, elements in zip(queues, posted, strict=True):
            for element in elements:
                await queue.post(element)
            await queue.ring.kick()

    async def _step(self, attr: QPAttr, state: QpState) -> None:
        steps = _STEPS.get(self.qp_type)
        if steps is None:
            raise RdmaError(errno.EOPNOTSUPP, f"{self.qp_type.name} has no transition table")
        attr.qp_state = state
        await self.modify(attr, steps[state])

    # Posting ------------------------------------------------------------------------------------

    async def post_send(self, requests: SendWR | Sequence[SendWR]) -> None:
        """Posts send requests, with one doorbell for all.

        A bad one ends the list: RdmaError with ``bad_wr``, those before it are posted. EINVAL:
        state, SGEs or inline bytes beyond the capacities; ENOMEM: queue full.
        """
        await self._send_queue().post_all(requests, self._send_element)

    async def post_batch(self, requests: Sequence[SendWR]) -> None:
        """Posts all of the requests, with one doorbell, or none; errors as ``post_send``."""
        await self._send_queue().post_batch(requests, self._send_element)

    def _send_queue(self) -> WorkQueue:
        """Its send queue; RdmaError(EINVAL) of a target of XRC or DC, which has none."""
        if self.qp_type in _TARGETS:
            raise RdmaError(errno.EINVAL, f"QP {self.qp_num:#x} has no send queue")
        return self.sq

    async def post_recv(self, requests: RecvWR | Sequence[RecvWR]) -> None:
        """Posts receive requests; errors as with ``post_send``, and EINVAL with an SRQ."""
        if self.srq or self.qp_type in _ONE_SIDED:
            raise RdmaError(errno.EINVAL, f"QP {self.qp_num:#x} has no receive queue of its own")
        await self.rq.post_all(requests, self._receive_element)

    def _send_element(self, request: SendWR) -> bytes:
        if self.state not in _CAN_SEND:
            raise RdmaError(errno.EINVAL, f"QP {self.qp_num:#x} cannot send in {self.state.name}")
        inline = None
        if request.send_flags & SendFlags.INLINE:
            inline = self._inline(request)
            if len(inline) > self.cap.max_inline_data:
                raise RdmaError(
                    errno.EINVAL,
                    f"{len(inline)} bytes inline, at most {self.cap.max_inline_data}",
                )
        elif request.opcode == WrOpcode.MEMCPY:
            most = self.ctx.query_device().max_memcpy_length
            for sge in request.sg:
                if not 0 < sge.length <= most:
                    text = f"{sge.length} bytes to copy, from 1 to {most}"
                    raise RdmaError(errno.EINVAL, text)
        elif request.opcode in LAYOUTS:
            most = self.ctx.query_device().max_mkey_entries
            if len(request.sg) > most:
                text = f"{len(request.sg)} slots of a layout, at most {most}"
                raise RdmaError(errno.ENOMEM, text)
        elif len(request.sg) > self.cap.max_send_sge:
            raise RdmaError(
                errno.EINVAL, f"{len(request.sg)} SGEs to send, at most {self.cap.max_send_sge}"
            )
        if observer := self.ctx.device.observer:
            observer.posted(self.qp_type, request)
        return request.pack(inline)

    def _inline(self, request: SendWR) -> bytes:
        if request.inline_data is not None:
            return request.inline_data
        parts = []
        for sge in request.sg:
            mr = self.ctx.mrs.get(sge.lkey)
            if mr is None:
                raise RdmaError(errno.EINVAL, f"No region with lkey {sge.lkey:#x} to copy from")
            parts.append(mr.read(sge.length, sge.addr - mr.iova).tobytes())
        return b"".join(parts)

    def _receive_element(self, request: RecvWR) -> bytes:
        if self.state == QpState.RESET:
            raise RdmaError(errno.EINVAL, f"QP {self.qp_num:#x} cannot receive in RESET")
        if len(request.sg) > self.cap.max_recv_sge:
            raise RdmaError(
                errno.EINVAL, f"{len(request.sg)} SGEs to receive, at most {self.cap.max_recv_sge}"
            )
        return request.pack()

    async def post_raw(self, queue: WorkQueue, element: bytes) -> None:
        """Posts any bytes as an element of ``sq`` or ``rq``: what a broken driver would do."""
        await queue.post(element)
        await queue.kick()
