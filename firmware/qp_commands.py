"""The control commands about queue pairs, and what they do to the QP tables.

Tables other than ``qp_cfg`` belong to their rooms while a QP is live: they are written here only
in states in which their rooms leave them alone (``hdl/ports/rows.py``).
Spec: virtio-rdma VR-3.21 to VR-3.31.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from firmware.dc.creation import asked_streams, check_dynamic
from firmware.device import Operations
from firmware.hints import Hints
from firmware.objects import QP_TABLES, Limits, Objects, Qp, Refused, Srq
from firmware.pieces import asked_pieces, check_datagrams, check_type
from firmware.pkeys import PkeyTable
from firmware.qp import (
    UNUSED,
    configuration_row,
    initiator_row,
    new_attributes,
    placement_access,
)
from firmware.transitions import SEND_ERROR_STATES, next_state
from firmware.window_commands import WindowCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import QpAttrMask, QpState, QpType, RdmaFeature, SigType
from hdl.abi.layout import Values
from hdl.csr.map import row_map

#: Polls of a QP that flushes the WQE it holds, which takes some microseconds.
FLUSH_POLLS = 1000
#: ``QpRx.message`` of a QP that holds a receive WQE.
_HOLDS_WQE = 1

_XRC = (QpType.XRC_INI, QpType.XRC_TGT)
_DYNAMIC = (QpType.DCI, QpType.DCT)
#: Types that may have MEMCPY.
_COPYING = (QpType.RC, QpType.DCI)
#: Types that never have other extensions of RC.
_PLAIN = (*_XRC, *_DYNAMIC)
_LIVE = (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE)
_SENDING = (QpState.RTS, QpState.SQD, QpState.SQE)


class QpCommands:
    """CREATE, MODIFY, QUERY and DESTROY_QP; ``objects`` gives the device's objects."""

    def __init__(
        self,
        hardware: Operations,
        limits: Limits,
        hints: Hints,
        objects: Callable[[], Objects],
        pkeys: PkeyTable,
        negotiated: Callable[[RdmaFeature], Awaitable[bool]],
        windows: WindowCommands,
    ):
        self._hardware, self._limits, self._hints = hardware, limits, hints
        self._objects, self._pkeys, self._negotiated = objects, pkeys, negotiated
        self._windows = windows
        #: Called when a target of DC receives nothing any more.
        self.left: Callable[[Qp], Awaitable[None]] | None = None
        #: Pairs whose counters have begun since the function's last reset.
        self._counted: set[int] = set()

    def find(self, qpn: int) -> Qp:
        """The QP with this number, all 24 bits of it."""
        pair = abi.qp_index(qpn, self._limits.config.qps)
        qp = self._objects().qps.get(pair)
        if qp.qpn != qpn:
            raise Refused(f"No QP {qpn:#x}")
        return qp

    # CREATE -------------------------------------------------------------------------------------

    async def create(self, v: Values) -> dict[str, Any]:
        """CREATE_QP (VR-3.21 to VR-3.24)."""
        objects, limits = self._objects(), self._limits
        unused = await self._check_type(v)
        pd = None if "pdn" in unused else objects.pds.get(v.pdn)
        send_cq = None if "send_cqn" in unused else objects.cqs.get(v.send_cqn)
        recv_cq = None if "recv_cqn" in unused else objects.cqs.get(v.recv_cqn)
        xrcd = objects.xrcds.get(v.xrcdn) if v.qp_type == QpType.XRC_TGT else None
        if v.sq_sig_type not in list(SigType):
            raise Refused(f"sq_sig_type {v.sq_sig_type} does not exist")
        limits.check("max_qp_wr", v.max_send_wr)
        limits.check("max_qp_wr", v.max_recv_wr)
        limits.check("max_send_sge", v.max_send_sge)
        limits.check("max_recv_sge", v.max_recv_sge)
        if v.max_inline_data > limits.config.max_inline:
            raise Refused(f"{v.max_inline_data} bytes inline of {limits.config.max_inline}")
        srq = await self._shared_queue(v)
        streams = asked_streams(limits, v) if v.qp_type == QpType.DCI else None
        pieces = await asked_pieces(limits, v, self._negotiated)
        if pieces is not None:
            check_type(pieces, v.qp_type, srq is not None)

        attrs = Values(abi.QP_ATTR.unpack(bytes(abi.QP_ATTR.size)))
        attrs["cap"] = {name.name: v[name.name] for name in abi.QP_CAP.fields}
        if v.qp_type in (QpType.UD, QpType.GSI):
            attrs["path_mtu"] = limits.mtu  # a datagram's limit is the port's
        init = {name: v[name] for name in v if not name.startswith("reserved")}
        qpn = None
        if v.qp_type == QpType.GSI:
            pair = abi.GSI_QP_INDEX
        elif self._hints.qpns:
            qpn = self._hints.qpns.popleft()
            pair = abi.qp_index(qpn, limits.config.qps)
        else:
            pair = None
        qp = objects.qps.add(lambda: Qp(pd, send_cq, recv_cq, init, attrs, srq), pair)
        qp.qpn = objects.next_qpn(qp.number) if qpn is None else qpn
        qp.xrcd, qp.pieces = xrcd, pieces
        await self._allow(qp)
        if self._hints.starts:
            qp.start = self._hints.starts.popleft()
        if v.qp_type == QpType.DCI:
            qp.streams = streams
            qp.connected = initiator_row(qp)
        for used in qp.uses:
            used.users += 1
        self._counted.add(qp.number)
        await self._hardware.clear_counters(qp.number)
        await self.configure(qp, QpState.RESET)
        return {"qpn": qp.qpn}

    async def _shared_queue(self, v: Values) -> Srq | None:
        """The shared queue from which the QP is to take, if it names one."""
        if not v.srqn or not await self._negotiated(RdmaFeature.SRQ):
            return None
        srq = self._objects().srqs.get(v.srqn)
        if v.max_recv_wr:
            raise Refused(f"max_recv_wr must be 0 with an SRQ, not {v.max_recv_wr}")
        if srq.xrcd is not None:
            raise Refused(f"SRQ {srq.number} serves the targets of an XRC domain")
        if srq.pieces is not None and v.qp_type == QpType.DCT:
            raise Refused(f"The requests of SRQ {srq.number} take several packets")
        if srq.pieces is not None:
            check_datagrams(srq.pieces, v.qp_type)
            # The last completion of a request tells that it is used up: of one CQ it can.
            others = (qp.recv_cq for qp in self._objects().qps.all() if qp.srq is srq)
            if any(cq is not None and cq.number != v.recv_cqn for cq in others):
                raise Refused(f"recv_cqn {v.recv_cqn} is not that of the other QPs of the SRQ")
        return srq

    async def _check_type(self, v: Values) -> tuple[str, ...]:
        """Refuses a type that the card or the driver does not have, and fields that it has no use
        for, which are returned."""
        extended = await self._negotiated(RdmaFeature.XRC) if self._limits.config.xrc else False
        dynamic = await self._negotiated(RdmaFeature.DC) if self._limits.config.dc else False
        known = v.qp_type in list(QpType) and v.qp_type in self._limits.qp_types
        lacking = (*_XRC * (not extended), *_DYNAMIC * (not dynamic))
        if not known or v.qp_type in lacking:
            raise Refused(f"QP type {v.qp_type} is not supported")
        if dynamic:
            check_dynamic(v)
        if v.xrcdn and extended and v.qp_type != QpType.XRC_TGT:
            raise Refused(f"xrcdn must be 0, not {v.xrcdn}, of type {v.qp_type}")
        unused = UNUSED.get(v.qp_type, ())
        for name in unused:
            if v[name]:
                raise Refused(f"{name} must be 0, not {v[name]}, of type {v.qp_type}")
        return unused

    async def _allow(self, qp: Qp) -> None:
        """The queue pair may post what its driver has negotiated, as far as its type has that."""
        limits, config = self._limits, self._limits.config
        qp.binds = config.windows and await self._negotiated(RdmaFeature.MW)
        if qp.type in _COPYING:
            qp.copies = config.memcpy and await self._negotiated(RdmaFeature.MEMCPY)
        if qp.type not in _PLAIN:
            qp.layouts = config.mkeys and await self._negotiated(RdmaFeature.MKEY)
            qp.placement = int(await placement_access(limits, self._negotiated))

    # MODIFY -------------------------------------------------------------------------------------

    async def modify(self, v: Values) -> None:
        """MODIFY_QP (VR-3.25 to VR-3.29)."""
        qp = self.find(v.qpn)
        before = await self.actual_state(qp)
        after = next_state(before, qp.type, v.attr_mask, v.attrs)
        notifies = v.attr_mask & QpAttrMask.EN_SQD_ASYNC_NOTIFY and v.attrs["en_sqd_async_notify"]
        if notifies and not await self._negotiated(RdmaFeature.EVENTS):
            raise Refused(f"en_sqd_async_notify cannot be {notifies}: there are no events")
        objects = self._objects()
        attrs = new_attributes(
            self._limits, qp, v.attr_mask, v.attrs, gids=objects.gids, pkeys=self._pkeys
        )
        if v.attr_mask & QpAttrMask.MAX_DEST_RD_ATOMIC:
            self._reserve(qp, before, attrs["max_dest_rd_atomic"])
        attrs["qp_state"] = after
        qp.attrs = attrs
        qp.notify_drained = after == QpState.SQD and bool(notifies or qp.notify_drained)
        await self._leave(qp, after)
        if after == QpState.RESET:
            await self._let_go(qp)
            if qp.type == QpType.DCI:
                qp.connected = initiator_row(qp)
            if qp.streams is not None:
                qp.streams.forget()
            await self.stop(qp)
            qp.told.clear()
            return
        if not (objects.redoing and await self._configured(qp) == after):
            await self._prepare(qp, before, after)
        await self.configure(qp, after)
        if qp.notify_drained and before != QpState.SQD:
            await self._hardware.drain()  # no WQE begins by the row of before
        if after == QpState.ERR or (after == QpState.RTS and before != after):
            await self._hardware.wake(qp.number)  # there may be something to flush, or to send

    async def _prepare(self, qp: Qp, before: QpState, after: QpState) -> None:
        """Writes the rows that the new state needs, which are the rooms' from then on."""
        if before == QpState.RESET:
            await self._initialise(qp)
        if before == QpState.INIT and after == QpState.RTR:
            await self._start_receiving(qp)
        if before == QpState.RTR and after == QpState.RTS:
            await self._start_sending(qp)
        if before == QpState.SQE and after == QpState.RTS:
            await self.set_send_error(qp, 0)

    async def _configured(self, qp: Qp) -> int:
        """The state that the hardware has been given."""
        return (await self._hardware.read_fields("qp_cfg", qp.number, "state"))["state"]

    def _reserve(self, qp: Qp, state: QpState, entries: int) -> None:
        """Takes the QP's slice of READ requests; a live one can only be used less."""
        if state == QpState.INIT:
            pool = self._objects().slices
            new = pool.take(entries)
            if qp.slice is not None:
                pool.give(qp.slice)
            qp.slice = new
        elif qp.slice is None or entries > qp.slice.size:
            raise Refused(f"{entries} READ requests, reserved are {qp.slice}")

    async def fail(self, qp: Qp) -> None:
        """To ERR, as something of the QP is broken that the driver has to mend."""
        await self.configure(qp, QpState.ERR)
        qp.attrs["qp_state"], qp.notify_drained = QpState.ERR, False
        self._objects().qps.touched.add(qp.number)
        await self._hardware.wake(qp.number)

    async def actual_state(self, qp: Qp) -> QpState:
        """The state with what has happened since: an error on the receive side puts the QP in ERR,
        one on the send side where its type says."""
        return (await self.look(qp))[0]

    async def look(self, qp: Qp) -> tuple[QpState, bool]:
        """Its actual state, and whether an error has stopped it. With streams one of the send side
        ends the stream at hand, unless too many have ended: which have is known before anybody
        hears of the state."""
        found, side = await self._failed_state(qp)
        if found is None or qp.streams is None:
            return found or qp.state, found is not None
        self._objects().qps.touched.add(qp.number)
        if qp.streams.fail(qp.stream, broken=side == "qp_rx"):
            await self.configure(qp, QpState.ERR)
            await self._hardware.wake(qp.number)
        return QpState.ERR if qp.streams.full else qp.state, True

    async def _failed_state(self, qp: Qp) -> tuple[QpState | None, str]:
        """The state that an error has put the QP in, by its rows alone, and the table of that."""
        if qp.state in _LIVE:
            for table, state in (
                ("qp_rx", QpState.ERR),
                ("qp_tx", SEND_ERROR_STATES[qp.type]),
                ("qp_ack", SEND_ERROR_STATES[qp.type]),
            ):
                if (await self._hardware.read_fields(table, qp.number, "error"))["error"]:
                    return state, table
        return None, ""

    async def _leave(self, qp: Qp, state: QpState) -> None:
        """A target of DC that goes to RESET or ERR has no connections any more."""
        if (
            qp.type == QpType.DCT
            and state in (QpState.RESET, QpState.ERR)
            and self.left is not None
        ):
            await self.left(qp)

    async def begin_end(self, qp: Qp) -> None:
        """Lets an end of a connection of DC receive."""
        await self._initialise(qp)
        await self._start_receiving(qp)
        await self.configure(qp, QpState.RTR)

    async def end_end(self, qp: Qp) -> None:
        """Ends one: what it holds of the SRQ ends flushed, and nothing is under way then."""
        await self._let_go(qp)
        await self._hardware.write_row("qp_cfg", qp.number, {})
        await self._hardware.drain()
        for table in QP_TABLES:
            if table not in ("qp_cfg", "qp_fetch", "qp_tx"):
                await self._hardware.write_row(table, qp.number, {})
        self._give_slice(qp)

    async def configure(self, qp: Qp, state: QpState) -> None:
        """Writes the QP's configuration, in ``state``. A target of DC receives nothing by itself:
        its ends do, which have rows of their own."""
        if self._objects().qps.find(qp.number) is qp and qp.type == QpType.DCT:
            state = QpState.RESET
        row = configuration_row(qp, state, self._pkeys[qp.attrs["pkey_index"]])
        await self._hardware.write_row("qp_cfg", qp.number, row)

    async def _write(self, qp: Qp, table: str, **row: int) -> None:
        await self._hardware.write_row(table, qp.number, row | qp.start.get(table, {}))

    def _queues(self, qp: Qp) -> tuple[int, int]:
        """Its send and its receive virtqueue."""
        config = self._limits.config
        return config.sq_queue(qp.number), config.rq_queue(qp.number)

    async def _send_position(self, qp: Qp) -> int:
        """Where the send ring goes on: 0 after a reset of the queue (E-18)."""
        queue, _ = self._queues(qp)
        row = await self._hardware.read_row("used", queue)
        return int(row["value"])

    async def _generation(self, qp: Qp) -> dict[str, int]:
        """The generation of the QP's WQEs, which lives through a RESET."""
        return await self._hardware.read_fields("qp_tx", qp.number, "generation")

    async def _initialise(self, qp: Qp) -> None:
        """RESET -> INIT: all rows as new."""
        send = await self._send_position(qp)
        fetched = await self._generation(qp)
        await self._write(qp, "qp_fetch", position=send, asked=send, available=send, **fetched)
        await self._write(qp, "qp_tx", position=send, high=send, **fetched)
        await self._write(qp, "qp_ack", position=send)
        await self._write(qp, "qp_rx")
        await self._write(qp, "qp_reply")

    async def _start_receiving(self, qp: Qp) -> None:
        psn = qp.attrs["rq_psn"]
        await self._write(qp, "qp_rx", psn=psn, ack_psn=(psn - 1) % (1 << abi.PSN_BITS))

    async def _start_sending(self, qp: Qp) -> None:
        send = await self._send_position(qp)
        psn = qp.attrs["sq_psn"]
        await self._write(qp, "qp_ack", psn=psn, start=psn, position=send)
        await self._write(qp, "qp_sent", psn=psn)
        fetched = await self._generation(qp)
        await self._write(qp, "qp_tx", position=send, high=send, psn=psn, **fetched)

    async def set_send_error(self, qp: Qp, error: int) -> None:
        """SQE -> RTS: WQEs that are posted from now on are sent, or, with ``error`` 1, flushed. In
        SQE the send side does not move, so its rows can be changed when nothing is under way."""
        await self.configure(qp, QpState.SQE)
        await self._hardware.drain()
        for table in ("qp_tx", "qp_ack"):
            row = await self._hardware.read_row(table, qp.number)
            await self._hardware.write_row(table, qp.number, row | {"error": error})

    async def _let_go(self, qp: Qp) -> None:
        """What the QP holds of an SRQ ends flushed, as nobody else can give it back to the driver.
        When the ring is not there any more, there is nothing to give back."""
        if not qp.holds_shared:
            return
        await self.configure(qp, QpState.ERR)
        await self._hardware.drain()
        await self._hardware.flush(qp.number)
        for _ in range(FLUSH_POLLS):
            if not await self.holds_wqe(qp):
                return

    async def holds_wqe(self, qp: Qp) -> bool:
        """Whether the QP holds a receive WQE."""
        row = await self._hardware.read_fields("qp_rx", qp.number, "message", "held")
        return row["message"] == _HOLDS_WQE or bool(row["held"])

    async def drained(self, qp: Qp) -> bool:
        """Whether each WQE that has begun has ended: by WQEs, as the PSN moves back when something
        is sent again."""
        sent = await self._hardware.read_fields("qp_tx", qp.number, "high")
        ended = await self._hardware.read_fields("qp_ack", qp.number, "position")
        return sent["high"] == ended["position"]

    async def stop(self, qp: Qp, *, windows: bool = True) -> None:
        """To RESET: nothing of the QP is under way or fetched ahead when this returns. ``windows``:
        the memory windows that it has bound are freed."""
        await self.configure(qp, QpState.RESET)
        await self._hardware.drain()
        await self._hardware.drop(qp.number)
        # A WQE that is still fetched is of an older generation whenever the QP sends again.
        begun = (await self._generation(qp))["generation"] + 1
        fetched = {"generation": begun % (1 << row_map("qp_tx").fields["generation"].width)}
        for table in QP_TABLES:
            if table != "qp_cfg":
                row = fetched if table in ("qp_fetch", "qp_tx") else {}
                await self._hardware.write_row(table, qp.number, row)
        for queue in self._queues(qp):
            await self._hardware.drop_queue(queue)
        if windows:
            await self._windows.release(qp.number)
        self._give_slice(qp)

    def _give_slice(self, qp: Qp) -> None:
        """Frees its part of the pool of READ requests."""
        if qp.slice is not None:
            self._objects().slices.give(qp.slice)
            qp.slice = None

    def take_counted(self) -> list[int]:
        """The QPs that the function has or had since this was asked last: their counters are to
        read 0 for its next owner."""
        counted = self._counted | {qp.number for qp in self._objects().qps.all()}
        self._counted.clear()
        return sorted(counted)

    # QUERY, DESTROY -----------------------------------------------------------------------------

    async def query(self, v: Values) -> dict[str, Any]:
        """QUERY_QP: everything, whatever the mask (VR-3.30); PSNs are the next ones."""
        qp = self.find(v.qpn)
        attr = dict(qp.attrs)
        state = await self.actual_state(qp)
        attr["qp_state"] = attr["cur_qp_state"] = state
        if qp.state in _LIVE:
            rx = await self._hardware.read_fields("qp_rx", qp.number, "psn")
            attr["rq_psn"] = rx["psn"]
        if qp.state in _SENDING:
            sent = await self._hardware.read_fields("qp_tx", qp.number, "psn")
            attr["sq_psn"] = sent["psn"]
            attr["sq_draining"] = int(state == QpState.SQD and not await self.drained(qp))
        return {"attr": attr}

    async def destroy(self, v: Values) -> None:
        """DESTROY_QP: outstanding requests get no completion (VR-3.31), but for one of an SRQ.
        Refused while the QP is a member of a multicast group."""
        qp = self.find(v.qpn)
        for group in self._objects().groups.all():
            if qp.qpn in group.members:
                raise Refused(f"QP {qp.qpn:#x} is a member of the group {group.gid.hex()}")
        await self._leave(qp, QpState.RESET)
        await self._let_go(qp)
        await self.stop(qp)
        await self._hardware.write_row("qp_cfg", qp.number, {})
        for used in qp.uses:
            used.users -= 1
        self._objects().qps.remove(qp.number)
