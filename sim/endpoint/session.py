"""The verbs behind the endpoint's protocol: requests in, replies out, on any open device.

Knows neither pipes nor the simulation; ``sim.endpoint.bench`` joins it to both.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from ipaddress import IPv6Address
from itertools import count
from types import SimpleNamespace
from typing import Any

from hdl.abi.enums import (
    Mtu,
    QpAttrMask,
    QpState,
    QpType,
    WrOpcode,
)
from hdl.abi.operations import WORK_REQUESTS
from hdl.abi.virtio_rdma import FIRST_USER_QP_INDEX
from hdl.wire.opcodes import Kind
from sim.endpoint.completions import Completions, shown
from sim.endpoint.connections import Connections
from sim.endpoint.dynamic import Dynamic, asked_streams
from sim.endpoint.fields import BadRequest, parse
from sim.endpoint.opcodes import INVALIDATING, LAYOUTS, lacks
from sim.endpoint.receive_queues import (
    ReceiveQueues,
    Reserved,
    asked_pieces,
    receives,
    shown_pieces,
)
from sim.endpoint.regions import Regions
from sim.endpoint.world import World
from sim.guest.driver.errors import CommandError, RdmaError
from sim.guest.verbs import (
    AH,
    PD,
    QP,
    SRQ,
    AHAttr,
    Context,
    FastMR,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    gid_bytes,
    gid_text,
)

__all__ = ["Session", "failure"]

Fields = SimpleNamespace
Reply = dict[str, Any]

#: Requests that leave the device alone, but for what it has done already.
_PASSIVE = ("info", "write_mem", "read_mem", "poll", "impair", "quit")
#: Queue pairs without a send queue, and without a receive queue of their own.
_TARGETS = (QpType.XRC_TGT, QpType.DCT)
_ONE_SIDED = (QpType.XRC_INI, QpType.DCI, *_TARGETS)


class Session:
    """One client's objects: regions, queue pairs, completions that it has not polled yet.

    context: the open device. addresses: those of its GIDs 0, 1, ..., which are set. ``over`` is
    set by ``quit``.
    """

    #: Whether the last request may have given the device something to do.
    acted = False

    def __init__(self, context: Context, world: World, *, mac: bytes, addresses: Sequence[str]):
        self._context, self._world = context, world
        self._mac, self._addresses = mac, addresses
        self._gids = [gid_bytes(address) for address in addresses]
        self._pd: PD | None = None
        self._regions = Regions(context)
        self._qps: dict[int, tuple[QP, Sequence[Reserved]]] = {}
        # None is given twice, so that one of something gone is noticed.
        self._qp_numbers = count()
        self._completions = Completions(context)
        self._shared = ReceiveQueues(context, self._completions)
        self._connections = Connections(context, world, self.queue_pair)
        self._dynamic = Dynamic(self)
        self.over = False
        #: The sessions of the card's functions, by number; this one is that of function 0.
        self.functions: list[Session] = [self]

    @property
    def waits_for_peers(self) -> bool:
        """Whether the connection manager has a message that no peer has answered."""
        return any(one._connections.wait_for_peers for one in self.functions)

    async def waits_for_answers(self) -> bool:
        """Whether a queue pair has send requests that have not completed.

        Takes completions from the device, so not while a request is served, except in a wait.
        """
        for one in self.functions:
            await one._completions.collect()
        qps = [qp for one in self.functions for qp, _ in one._qps.values()]
        return any(qp.sq.outstanding for qp in qps if qp.qp_type not in _TARGETS)

    async def handle(self, line: bytes) -> bytes:
        """The reply to one line, with its newline; failures are replies too."""
        try:
            op, fields = parse(line)
            self.acted = op not in _PASSIVE
            if fields.function >= len(self.functions):
                raise BadRequest(f"There is no function {fields.function}")
            function = self.functions[fields.function]
            reply: Reply = await function._handler(op)(fields)
            self.over |= function.over
        except RdmaError as error:
            reason = self._world.refusal() if isinstance(error, CommandError) else ""
            return failure(error.errno, f"{error.strerror}{reason and ': '}{reason}")
        except MemoryError:
            return failure(errno.ENOMEM, "This machine has no memory left for that")
        return _line(reply)

    # Device -------------------------------------------------------------------------------------

    async def _info(self, f: Fields) -> Reply:
        gids = [gid_text(gid) for gid in self._gids]
        return {
            "mac": self._mac.hex(":"),
            "ip": self._addresses[0],
            "gid": gids[0],
            "max_mtu": max(mtu.octets for mtu in Mtu),
            "gids": gids,
            **self._world.facts(),
        }

    async def _impair(self, f: Fields) -> Reply:
        self._world.impair(f.what)
        return {}

    async def _counters(self, f: Fields) -> Reply:
        return {"counters": await self._context.counters() | self._world.counters()}

    async def _quit(self, f: Fields) -> Reply:
        self.over = True
        return {}

    async def domain(self) -> PD:
        """The protection domain of everything."""
        if self._pd is None:
            self._pd = await self._context.alloc_pd()
        return self._pd

    # Memory -------------------------------------------------------------------------------------

    async def _reg_mr(self, f: Fields) -> Reply:
        return await self._regions.register(await self.domain(), f)

    async def _create_mkey(self, f: Fields) -> Reply:
        return await self._regions.create_key(await self.domain(), f)

    async def _dereg_mr(self, f: Fields) -> Reply:
        await self._regions.close(f.mr)
        return {}

    async def _write_mem(self, f: Fields) -> Reply:
        self._regions.part(f.mr, f.offset, len(f.data)).write(f.data, f.offset)
        return {}

    async def _read_mem(self, f: Fields) -> Reply:
        mr = self._regions.part(f.mr, f.offset, f.length)
        await self._world.shown()
        return {"data": mr.read(f.length, f.offset).tobytes().hex()}

    # Queue pairs --------------------------------------------------------------------------------

    async def _create_qp(self, f: Fields) -> Reply:
        device = self._context.query_device()
        most = device.max_qp - FIRST_USER_QP_INDEX
        if len(self._qps) >= most:
            raise RdmaError(errno.ENOMEM, f"All {most} queue pairs are in use")
        inline = self._world.max_inline_data
        cap = QPCap(
            max_send_wr=f.max_send_wr,
            max_recv_wr=f.max_recv_wr,
            max_send_sge=device.max_send_sge if f.max_send_sge is None else f.max_send_sge,
            max_recv_sge=device.max_recv_sge if f.max_recv_sge is None else f.max_recv_sge,
            max_inline_data=inline if f.max_inline_data is None else f.max_inline_data,
        )
        srq = None if f.srq is None else self._shared.queue(f.srq)
        xrcd = None if f.xrcd is None else self._shared.domain(f.xrcd)
        pieces = asked_pieces(f.mp_wr)
        pd = await self.domain()
        sends = 0 if f.type in _TARGETS else cap.max_send_wr
        gets = 0 if f.type in _ONE_SIDED else receives(cap.max_recv_wr, pieces)
        reserved = await self._shared.reserve(sends, gets, f.srq)
        (scq, _), (rcq, _) = reserved
        init = QPInitAttr(f.type, scq, rcq, cap, int(f.sq_sig_all), srq=srq, xrcd=xrcd)
        try:
            more = {"dc_key": f.dc_key, "streams": asked_streams(f.streams), "mp_wr": pieces}
            qp = await QP.create(pd, replace(init, **more))
        except BaseException:
            self._completions.release(reserved)
            raise
        number = next(self._qp_numbers)
        self._qps[number] = (qp, reserved)
        return {"qp": number, "qpn": qp.qp_num} | shown_pieces(pieces)

    async def _destroy_qp(self, f: Fields) -> Reply:
        qp = self.queue_pair(f.qp)
        await self._completions.collect()
        await qp.close()
        _, reserved = self._qps.pop(f.qp)
        self._completions.release(reserved)
        return {}

    async def _create_xrcd(self, f: Fields) -> Reply:
        return {"xrcd": await self._shared.create_domain()}

    async def _destroy_xrcd(self, f: Fields) -> Reply:
        await self._shared.destroy_domain(f.xrcd)
        return {}

    async def _create_srq(self, f: Fields) -> Reply:
        return await self._shared.create(await self.domain(), f)

    async def _destroy_srq(self, f: Fields) -> Reply:
        await self._shared.destroy(f.srq)
        return {}

    def queue_pair(self, number: int) -> QP:
        """The one of that number; BadRequest."""
        if number not in self._qps:
            raise BadRequest(f"There is no qp {number}")
        return self._qps[number][0]

    async def _connect(self, f: Fields) -> Reply:
        attr = QPAttr(
            path_mtu=f.path_mtu,
            qkey=f.qkey,
            rq_psn=f.rq_psn,
            sq_psn=f.sq_psn,
            dest_qp_num=f.dest_qpn,
            qp_access_flags=f.access,
            max_rd_atomic=f.max_rd_atomic,
            max_dest_rd_atomic=f.max_dest_rd_atomic,
            min_rnr_timer=f.min_rnr_timer,
            timeout=f.timeout,
            retry_cnt=f.retry_cnt,
            rnr_retry=f.rnr_retry,
            ah_attr=self.way(f),
        )
        await self.queue_pair(f.qp).to_rts(attr)
        return {}

    def way(self, f: Fields) -> AHAttr:
        """The address attributes in the fields of a connection or of a datagram."""
        route = GlobalRoute(
            dgid=f.dest_gid,
            flow_label=f.flow_label,
            sgid_index=self._source(f.dest_gid) if f.sgid_index is None else f.sgid_index,
            hop_limit=f.hop_limit,
            traffic_class=f.traffic_class,
        )
        return AHAttr(gr=route, roce_dmac=f.dest_mac)

    def _source(self, dest: bytes) -> int:
        """The GID to send from: the first of the destination's kind."""

        def kind(gid: bytes) -> tuple[bool, bool]:
            address = IPv6Address(gid)
            return address.ipv4_mapped is not None, address.is_link_local

        kinds = [kind(gid) for gid in self._gids]
        wanted = kind(dest)
        for alike in (wanted, (wanted[0], not wanted[1])):
            if alike in kinds:
                return kinds.index(alike)
        family = "IPv4" if wanted[0] else "IPv6"
        raise BadRequest(f"dest_gid {gid_text(dest)}: there is no {family} address to send from")

    def _handler(self, op: str) -> Callable[[Fields], Awaitable[Reply]]:
        """What serves a request."""
        part, _, name = op.partition("_")
        parts = {"cm": self._connection, "dc": self._dynamic.handler}
        handler: Callable[[Fields], Awaitable[Reply]]
        handler = parts[part](name) if part in parts else getattr(self, f"_{op}")
        return handler

    def _connection(self, op: str) -> Callable[[Fields], Awaitable[Reply]]:
        """What serves a request of the connection manager."""

        async def serve(f: Fields) -> Reply:
            if hasattr(f, "sgid_index") and f.sgid_index is None:
                f.sgid_index = self._source(f.dest_gid)
            return await self._connections.handler(op)(f)

        return serve

    async def _modify(self, f: Fields) -> Reply:
        qp = self.queue_pair(f.qp)
        if f.state == QpState.INIT:  # which no queue pair can be in without these
            await qp.to_init(QPAttr(qp_access_flags=f.access, qkey=f.qkey))
        else:
            await qp.modify(QPAttr(qp_state=f.state), QpAttrMask.STATE)
        return {}

    # Requests and completions -------------------------------------------------------------------

    async def _post_recv(self, f: Fields) -> Reply:
        if (f.qp is None) == (f.srq is None):
            raise BadRequest("post_recv: either qp or srq must be there")
        queue: QP | SRQ = self.queue_pair(f.qp) if f.srq is None else self._shared.queue(f.srq)
        request = RecvWR(f.wr_id, self._regions.sges(f.sge))
        await self._completions.collect()
        await queue.post_recv(request)
        return {}

    async def _post_send(self, f: Fields) -> Reply:
        qp = self.queue_pair(f.qp)
        datagram = qp.qp_type in (QpType.UD, QpType.GSI)
        if datagram != (f.ah is not None):
            raise BadRequest(f"post_send: ah is for datagrams, the QP is {qp.qp_type.name}")
        local = WORK_REQUESTS[f.opcode].kind is Kind.LOCAL
        if not local and (qp.qp_type == QpType.XRC_INI) != (f.srq_num is not None):
            raise BadRequest(f"post_send: srq_num is for XRC_INI, the QP is {qp.qp_type.name}")
        self._check_opcode(f.opcode)
        request = SendWR(f.wr_id, f.opcode, self._regions.sges(f.sge), f.flags, f.imm)
        if datagram:
            request.set_wr_ud(AH(qp.pd, self.way(f.ah)), f.ah.dest_qpn, f.ah.qkey)
        elif f.opcode == WrOpcode.REG_MR:
            return await self._register(qp, f)
        elif f.opcode in LAYOUTS:
            request = self._regions.layout(f)
        elif f.opcode == WrOpcode.FLUSH:
            request.set_wr_flush(f.rkey, f.remote_addr, f.length, f.flush_type, f.level)
        elif f.opcode == WrOpcode.ATOMIC_WRITE:
            if len(f.data) != 8:
                raise BadRequest("post_send: ATOMIC_WRITE needs 8 bytes of data")
            request.set_wr_atomic_write(f.rkey, f.remote_addr, f.data)
        else:
            request.set_remote(f.rkey, f.remote_addr, f.compare_add, f.swap)
        if f.opcode in INVALIDATING:
            request.invalidate_rkey = f.invalidate_rkey
        if f.srq_num is not None:
            request.set_wr_xrc_srqn(f.srq_num)
        self._dynamic.address(request, qp, f, local=local)
        await self._completions.collect()
        await qp.post_send(request)
        return {}

    async def _register(self, qp: QP, f: Fields) -> Reply:
        """A region of ``reg_mr`` with ``fast`` gets a new key, which is the reply."""
        mr = None if f.mr is None else self._regions.get(f.mr)
        if not isinstance(mr, FastMR):
            raise BadRequest("post_send: REG_MR needs mr, a region of reg_mr with fast")
        request = mr.reg_wr(f.access, wr_id=f.wr_id)
        request.send_flags = f.flags
        await self._completions.collect()
        await qp.post_send(request)
        return {"rkey": mr.key}

    def _check_opcode(self, opcode: WrOpcode) -> None:
        """Refuse what the device does not have, here."""
        if lacks(self._context.query_device(), opcode):
            raise RdmaError(errno.EOPNOTSUPP, f"This device has no {opcode.name}")

    async def _poll(self, f: Fields) -> Reply:
        until = time.monotonic() + f.timeout_ms / 1000
        await self._completions.collect()
        while len(self._completions) < f.n:
            await self._world.wait(until)
            await self._completions.collect()
            if time.monotonic() >= until:
                break
        return {"wc": [shown(wc) for wc in self._completions.take(f.n)]}


def failure(code: int | None, text: str | None) -> bytes:
    """The reply, with its newline, to a line that cannot be answered."""
    return _line({"error": {"errno": code, "message": text}})


def _line(reply: Reply) -> bytes:
    return json.dumps(reply).encode() + b"\n"
