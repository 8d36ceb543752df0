"""The control commands: parsing, checks, effects.

A command is checked completely before anything changes, so one that is refused changes nothing
(virtio-rdma VR-3.5). Spec: virtio-rdma section 3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from firmware.dc.commands import DcCommands
from firmware.dc.service import DcService
from firmware.device import ConnectionHardware, Operations, Request
from firmware.events import PORT, Events
from firmware.hints import Hints
from firmware.machine import Machine
from firmware.mcast_commands import McastCommands
from firmware.mkey_commands import MkeyCommands
from firmware.objects import QP_TABLES, Cq, Limits, Objects, Pd, Refused
from firmware.pkeys import PkeyTable
from firmware.qp import raw
from firmware.qp_commands import QpCommands
from firmware.queue_errors import QueueErrors
from firmware.region_commands import RegionCommands
from firmware.release import Release
from firmware.resize_commands import ResizeCommands
from firmware.srq_commands import SrqCommands
from firmware.window_commands import WindowCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import (
    ControlCommand,
    EventType,
    ExtensionCommand,
    GidType,
    NotifyFlags,
    PhysState,
    PortCap,
    PortSpeed,
    PortState,
    PortWidth,
    QpType,
    RdmaFeature,
    Response,
)
from hdl.abi.layout import Values
from hdl.wire.constants import is_mapped_gid

Handler = Callable[[Values], Awaitable[dict[str, Any] | None]]

#: Largest message in bytes: the limit of RETH.
MAX_MESSAGE = 1 << 31


#: What QUERY_PORT counts: the counters of the card that it is the sum of. Packets of no partition
#: at all are dropped before the others are looked at.
_VIOLATIONS = {"bad_pkey_cntr": ("bad_pkey", "rx_drops_pkey"), "qkey_viol_cntr": ("bad_qkey",)}
_COUNTER = 0xFFFF_FFFF


def _refuse_reserved(values: Values) -> None:
    """Refuses a command of an extension that has something in its reserved fields."""
    for name, value in values.items():
        if name.startswith("reserved") and (any(value) if isinstance(value, Iterable) else value):
            raise Refused(f"{name} is not 0")


class Commands:
    """Serves the control requests of one guest function.

    All numbers are the function's own. ``features``: the extensions that its driver has negotiated,
    a mask of ``RdmaFeature``; ``foreign``: whether a GID is another function's.
    ``connections``: of a card with DC; ``machine``: time and random numbers, for these.
    ``refusal`` says why the last command was refused, for logs and tests.
    """

    def __init__(
        self,
        hardware: Operations,
        limits: Limits,
        hints: Hints,
        *,
        features: Callable[[], Awaitable[int]],
        foreign: Callable[[bytes], bool] = lambda gid: False,
        connections: ConnectionHardware | None = None,
        machine: Machine | None = None,
    ):
        self.hardware, self.limits, self.hints = hardware, limits, hints
        self.features, self._foreign = features, foreign
        self.objects = Objects(limits)
        #: GID index -> VLAN of the packets that are sent from it.
        self.vlans: dict[int, int] = {}
        self.pkeys = PkeyTable(limits.device["max_pkeys"])
        self._shown = False  # the hardware has the P_Keys
        self.refusal = ""
        mws = WindowCommands(hardware, limits, lambda: self.objects)
        self._qps = qp = QpCommands(
            hardware, limits, hints, lambda: self.objects, self.pkeys, self._negotiated, mws
        )
        mrs = RegionCommands(hardware, limits, hints, lambda: self.objects, self._negotiated, mws)
        mkeys = MkeyCommands(hardware, limits, lambda: self.objects)
        resize = ResizeCommands(hardware, limits, lambda: self.objects, qp)
        srq = SrqCommands(hardware, limits, lambda: self.objects, self._negotiated, resize)
        mcast = McastCommands(hardware, limits, lambda: self.objects, qp.find)
        self.events = Events(hardware, limits, lambda: self.objects, qp)
        self.queue_errors = QueueErrors(limits, lambda: self.objects, qp, self.events)
        self._met = False  # the driver's choice of events is known
        #: Of a card with DC.
        self.dc: DcService | None = None
        if connections is not None:
            self.dc = DcService(
                hardware,
                connections,
                lambda: self.objects,
                qp,
                self.pkeys,
                self.events.report,
                machine or Machine(),
            )
            qp.left = self.dc.left
        self._handlers: dict[abi.AnyCommand, Handler] = {
            ControlCommand.QUERY_PORT: self._query_port,
            ControlCommand.CREATE_CQ: self._create_cq,
            ControlCommand.DESTROY_CQ: self._destroy_cq,
            ControlCommand.CREATE_PD: self._create_pd,
            ControlCommand.DESTROY_PD: self._destroy_pd,
            ControlCommand.GET_DMA_MR: mrs.get_dma,
            ControlCommand.CREATE_MR: mrs.create,
            ControlCommand.MAP_MR_SG: mrs.map,
            ControlCommand.REG_USER_MR: mrs.register,
            ControlCommand.DEREG_MR: mrs.deregister,
            ControlCommand.CREATE_QP: qp.create,
            ControlCommand.MODIFY_QP: qp.modify,
            ControlCommand.QUERY_QP: qp.query,
            ControlCommand.DESTROY_QP: qp.destroy,
            ControlCommand.QUERY_PKEY: self._query_pkey,
            ControlCommand.ADD_GID: self._add_gid,
            ControlCommand.DEL_GID: self._del_gid,
            ControlCommand.REQ_NOTIFY_CQ: self._req_notify_cq,
            ExtensionCommand.CREATE_SRQ: srq.create,
            ExtensionCommand.MODIFY_SRQ: srq.modify,
            ExtensionCommand.QUERY_SRQ: srq.query,
            ExtensionCommand.DESTROY_SRQ: srq.destroy,
            ExtensionCommand.ALLOC_XRCD: srq.alloc_domain,
            ExtensionCommand.DEALLOC_XRCD: srq.dealloc_domain,
            ExtensionCommand.CREATE_XRC_SRQ: srq.create_xrc,
            ExtensionCommand.RESIZE_CQ: resize.resize_cq,
            ExtensionCommand.RESIZE_QP: resize.resize_qp,
            ExtensionCommand.REREG_MR: mrs.reregister,
            ExtensionCommand.REG_USER_MR_PAGES: mrs.register_pages,
            ExtensionCommand.REG_USER_MR_TABLE: mrs.register_table,
            ExtensionCommand.ALLOC_MW: mws.alloc,
            ExtensionCommand.DEALLOC_MW: mws.dealloc,
            ExtensionCommand.CREATE_MKEY: mkeys.create,
            ExtensionCommand.ATTACH_MCAST: mcast.attach,
            ExtensionCommand.DETACH_MCAST: mcast.detach,
        }
        if self.dc is not None:
            ends = self.dc.initiators, self.dc.targets
            dc = DcCommands(limits, lambda: self.objects, qp, *ends)
            self._handlers |= {
                ExtensionCommand.CREATE_DC_DESTINATION: dc.create,
                ExtensionCommand.DESTROY_DC_DESTINATION: dc.destroy,
                ExtensionCommand.RESET_STREAM: dc.reset_stream,
                ExtensionCommand.QUERY_DCT: dc.query_target,
            }

    async def serve(self, request: Request) -> bytes:
        """The response to one request: OK and its data, or ERR; nothing without room for a byte."""
        if request.writable < abi.RESPONSE_HEADER.size:
            self.refusal = "no room for a response"
            return b""
        if self.limits.config.events and not self._met:
            self._met, self.events.wanted = True, await self._negotiated(RdmaFeature.EVENTS)
            self.events.keeps = await self._negotiated(RdmaFeature.QUEUE_ERROR)
            self.events.changed = True
        try:
            self.refusal = ""
            return await self._serve(request)
        except Refused as refused:
            self.refusal = str(refused)
            return abi.RESPONSE_HEADER.pack(response=Response.ERR)

    def begin_release(self) -> Release:
        """What takes all objects from the function, as its device reset asks.

        Only a function with its driver away may be released. Its events are of the past at once.
        """
        self.events.forget()
        return Release(self.hardware, self.limits, self.objects, self._qps, self.forget)

    def forget(self) -> list[tuple[str, int]]:
        """All objects and events are of the past; returns the (table, row) of each object."""
        self._met = False
        self.events.forget()
        if self.dc is not None:
            self.dc.forget()
        return self.objects.forget()

    async def sweep(self) -> None:
        """Empties the rows of all objects that there can be, for a function that has none."""
        config = self.limits.config
        counts = dict.fromkeys(QP_TABLES, config.qps)
        counts |= {"mr": config.mrs, "cq": config.cqs, "gid": config.gids}
        counts["group"] = self.limits.device["max_mcast_grp"]
        for table, count in counts.items():
            for index in range(count):
                await self.hardware.write_row(table, index, {})

    async def settle_pkeys(self) -> None:
        """Gives the hardware the P_Key table as it is now, and the QPs of entries that have changed
        their new P_Key."""
        changed = set(self.pkeys.changed)
        self.pkeys.changed -= changed
        if QpType.GSI in self.limits.qp_types and (changed or not self._shown):
            await self.hardware.write_row("pkey", 0, self.pkeys.row())
            self._shown = True
        for index in sorted(changed):
            self.events.report(EventType.PKEY_CHANGE, index=index, port=PORT)
        for qp in self.objects.qps.all():
            if changed and qp.attrs["pkey_index"] in changed:
                await self._qps.configure(qp, qp.state)

    async def _serve(self, request: Request) -> bytes:
        if not request.data:
            raise Refused("empty request")
        number, body = request.data[0], request.data[abi.REQUEST_HEADER.size :]
        command = await self._known(number)
        asked, answered = abi.structures(command)
        if len(body) < asked.size:
            raise Refused(f"{command.name} needs {asked.size} bytes, not {len(body)}")
        room = request.writable - abi.RESPONSE_HEADER.size
        if room < answered.size:
            raise Refused(f"{command.name} answers {answered.size} bytes, there is room for {room}")
        values = asked.unpack(body)
        if isinstance(command, ExtensionCommand):
            _refuse_reserved(values)
        result = await self._handlers[command](values)
        return abi.RESPONSE_HEADER.pack(response=Response.OK) + answered.pack(result or {})

    async def _known(self, number: int) -> abi.AnyCommand:
        """The command with this number, of virtio-rdma or of an extension that is negotiated."""
        if number in list(ControlCommand):
            return ControlCommand(number)
        for feature, commands in abi.EXTENSIONS.items():
            if number in commands and await self._negotiated(feature):
                return ExtensionCommand(number)
        raise Refused(f"unknown command {number}")

    async def _negotiated(self, feature: RdmaFeature) -> bool:
        return bool(await self.features() & feature.mask)

    # Port ---------------------------------------------------------------------------------------

    async def _query_port(self, v: Values) -> dict[str, Any]:
        self.limits.check("phys_port_cnt", v.port, 1)
        up = await self.hardware.link_up()
        violations = {
            field: sum([await self.hardware.counter(name) for name in names]) & _COUNTER
            for field, names in _VIOLATIONS.items()
        }
        return {
            "state": PortState.ACTIVE if up else PortState.DOWN,
            "max_mtu": self.limits.mtu,
            "active_mtu": self.limits.mtu,
            "phys_mtu": self.limits.mtu.octets,
            "gid_tbl_len": self.limits.config.gids,
            "port_cap_flags": PortCap.CM_SUP,
            "max_msg_sz": MAX_MESSAGE,
            "pkey_tbl_len": self.limits.device["max_pkeys"],
            "active_width": PortWidth.X4,
            "active_speed": PortSpeed.EDR,
            "phys_state": PhysState.LINK_UP if up else PhysState.DISABLED,
            **violations,
        }

    async def _query_pkey(self, v: Values) -> dict[str, Any]:
        self.limits.check("phys_port_cnt", v.port, 1)
        if v.index >= self.limits.device["max_pkeys"]:
            raise Refused(f"no P_Key {v.index}")
        return {"pkey": self.pkeys[v.index]}

    def _gid_index(self, index: int, port: int) -> None:
        self.limits.check("phys_port_cnt", port, 1)
        if index >= self.limits.config.gids:
            raise Refused(f"no GID {index}")

    async def _add_gid(self, v: Values) -> None:
        self._gid_index(v.index, v.port_num)
        if v.gid_type != GidType.ROCE_V2:
            raise Refused(f"GID type {v.gid_type} is not RoCE v2")
        if not any(v.gid):
            raise Refused("the GID is zero")
        if not (self.limits.config.ipv6 or is_mapped_gid(v.gid)):
            raise Refused("the GID is no IPv4 address, and the card has no IPv6")
        if self._foreign(bytes(v.gid)):
            raise Refused("another function has the GID")
        row = {"valid": 1, "gid": raw(v.gid), "ipv4": int(is_mapped_gid(v.gid))}
        if v.index in self.vlans:
            row |= {"vlan_valid": 1, "vlan_id": self.vlans[v.index]}
        self.objects.gids[v.index] = bytes(v.gid)
        await self.hardware.write_row("gid", v.index, row)
        self.events.report(EventType.GID_CHANGE, index=v.index, port=PORT)

    async def _del_gid(self, v: Values) -> None:
        self._gid_index(v.index, v.port)
        await self.hardware.write_row("gid", v.index, {})
        if self.objects.gids.pop(v.index, None) is not None:
            self.events.report(EventType.GID_CHANGE, index=v.index, port=PORT)

    # Completion queues --------------------------------------------------------------------------

    async def _create_cq(self, v: Values) -> dict[str, Any]:
        self.limits.check("max_cqe", v.cqe, 1)
        cq = self.objects.cqs.add(Cq)
        # Both ring indices start where the queue stands: 0 after a reset of the queue (E-18).
        queue = self.limits.config.cq_queue(cq.number)
        position = (await self.hardware.read_row("used", queue))["value"]
        row = {"position": position, "available": position}
        await self.hardware.write_row("cq", cq.number, row)
        return {"cqn": cq.number}

    async def _destroy_cq(self, v: Values) -> None:
        cq = self.objects.cqs.get(v.cqn)
        if cq.users:
            raise Refused(f"CQ {cq.number} is used by {cq.users} work queues")
        await self.hardware.drain()
        await self.hardware.write_row("cq", cq.number, {})
        await self.hardware.drop_queue(self.limits.config.cq_queue(cq.number))
        self.objects.cqs.remove(cq.number)

    async def _req_notify_cq(self, v: Values) -> None:
        cq = self.objects.cqs.get(v.cqn)
        flags = v.flags & (NotifyFlags.SOLICITED | NotifyFlags.NEXT_COMPLETION)
        if not flags:
            raise Refused(f"flags {v.flags:#x} ask for nothing")
        await self.hardware.arm_cq(cq.number, flags)

    # Protection domains -------------------------------------------------------------------------

    async def _create_pd(self, v: Values) -> dict[str, Any]:
        return {"pdn": self.objects.pds.add(Pd).number}

    async def _destroy_pd(self, v: Values) -> None:
        pd = self.objects.pds.get(v.pdn)
        if pd.users:
            raise Refused(f"PD {pd.number} is used by {pd.users} objects")
        self.objects.pds.remove(pd.number)
