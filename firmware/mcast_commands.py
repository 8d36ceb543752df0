"""The control commands about multicast groups (docs/extensions.md).

A group is a row of the function's part of the table of groups: its address and the QP numbers of
its members. It is there while it has members.
"""

from __future__ import annotations

from collections.abc import Callable

from firmware.device import Operations
from firmware.objects import Group, Limits, Objects, Qp, Refused
from firmware.qp import raw
from hdl.abi.enums import QpType
from hdl.abi.layout import Values
from hdl.abi.limits import GROUP_MEMBERS
from hdl.abi.multicast import is_multicast_gid

__all__ = ["McastCommands", "group_row"]


def group_row(group: Group) -> dict[str, int]:
    """The row of a group; an empty one without members."""
    if not group.members:
        return {}
    places = [*group.members, *[0] * (GROUP_MEMBERS - len(group.members))]
    members = {f"member{n}": qpn for n, qpn in enumerate(places)}
    return {"valid": 1, "gid": raw(group.gid), **members}


class McastCommands:
    """ATTACH_MCAST and DETACH_MCAST; ``objects`` gives the device's objects, ``find`` the QP with a
    number."""

    def __init__(
        self,
        hardware: Operations,
        limits: Limits,
        objects: Callable[[], Objects],
        find: Callable[[int], Qp],
    ):
        self._hardware, self._limits = hardware, limits
        self._objects, self._find = objects, find

    async def attach(self, v: Values) -> None:
        """ATTACH_MCAST: in any state of the QP; nothing changes when it is a member already."""
        objects, qp, gid = self._objects(), self._find(v.qpn), bytes(v.gid)
        if qp.type != QpType.UD:
            raise Refused(f"QP {qp.qpn:#x} is of type {qp.type.name}, not UD")
        if not is_multicast_gid(gid):
            raise Refused(f"{gid.hex()} is not the address of a group")
        group = objects.group_of(gid)
        if group is None:
            group = objects.groups.add(lambda: Group(gid))
        elif qp.qpn in group.members:
            return
        most = self._limits.device["max_mcast_qp_attach"]
        if len(group.members) >= most:
            raise Refused(f"the group {gid.hex()} has {most} members already")
        group.members.append(qp.qpn)
        await self._write(group)

    async def detach(self, v: Values) -> None:
        """DETACH_MCAST: the group ends with its last member."""
        objects, qp, gid = self._objects(), self._find(v.qpn), bytes(v.gid)
        group = objects.group_of(gid)
        if group is None or qp.qpn not in group.members:
            raise Refused(f"QP {qp.qpn:#x} is not a member of the group {gid.hex()}")
        group.members.remove(qp.qpn)
        await self._write(group)
        if not group.members:
            objects.groups.remove(group.number)

    async def _write(self, group: Group) -> None:
        await self._hardware.write_row("group", group.number, group_row(group))
