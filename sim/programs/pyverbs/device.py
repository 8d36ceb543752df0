"""Devices, their contexts, and what can be asked of them."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from hdl.abi.enums import RdmaFeature
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs.event import AsyncEvent as GuestEvent
from sim.programs import cards
from sim.programs.cards import Card
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.absent import refusing
from sim.programs.pyverbs.addr import GID
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, ask
from sim.programs.pyverbs.device_attr import DeviceAttr, DeviceAttrEx, GIDEntry, PortAttr
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from sim.programs.pyverbs.utils import name_of, names_of

__all__ = [
    "DM",
    "AllocDmAttr",
    "AsyncEvent",
    "Context",
    "Device",
    "DeviceAttr",
    "DeviceAttrEx",
    "GIDEntry",
    "PortAttr",
    "get_device_list",
    "rdma_get_devices",
]

DM: Any = refusing("DM")


class AllocDmAttr(PyverbsObject):
    """What memory on a device would be made from; the card has none."""

    def __init__(self, length: float, log_align_req: int = 0, comp_mask: int = 0):
        super().__init__()
        self.length, self.log_align_req, self.comp_mask = length, log_align_req, comp_mask


class Device(PyverbsObject):
    """A device that can be opened."""

    def __init__(self, name: bytes, guid: int, node_type: int, transport_type: int, index: int):
        super().__init__()
        self.name, self.guid, self.index = name, guid, index
        self.node_type, self.transport_type = node_type, transport_type

    def __str__(self) -> str:
        kind = translate_node_type(self.node_type)
        return f"Device {self.index}, name {self.name.decode()}, {kind}, {guid_format(self.guid)}"


def get_device_list() -> list[Device]:
    """All devices of this process."""
    return [
        Device(
            card.name.encode(),
            int.from_bytes(card.context.query_device().sys_image_guid, sys.byteorder),
            enums.IBV_NODE_CA,
            enums.IBV_TRANSPORT_IB,
            index,
        )
        for index, card in enumerate(cards.cards())
    ]


class Context(PyverbsCM):
    """An open device: by ``name``, or by ``cmd_fd``, a duplicate of another context's file."""

    #: Devices by the file of a context.
    _files: dict[int, Card] = {}

    def __init__(self, **kwargs: Any):
        super().__init__()
        name, descriptor = kwargs.get("name"), kwargs.get("cmd_fd")
        if descriptor is not None:
            self.card = self._by_file(descriptor)
            self.cmd_fd = descriptor
        elif name is not None:
            self.card = self._by_name(name)
            self.cmd_fd = os.memfd_create(self.card.name)
            self._files[os.fstat(self.cmd_fd).st_ino] = self.card
        else:
            raise PyverbsUserError("Device name must be provided")
        self.name = self.card.name
        self.card.inboxes.open(self)
        self._opened()

    @staticmethod
    def _by_name(name: str | bytes) -> Card:
        text = name.decode() if isinstance(name, bytes) else name
        for card in cards.cards():
            if card.name == text:
                return card
        raise PyverbsRDMAError(f"Failed to open device {text}", errno.ENODEV)

    @classmethod
    def _by_file(cls, descriptor: int) -> Card:
        try:
            return cls._files[os.fstat(descriptor).st_ino]
        except (KeyError, OSError):
            raise PyverbsRDMAError("Failed to import device", errno.EINVAL) from None

    @property
    def context(self) -> Context:
        """Itself."""
        return self

    @property
    def num_comp_vectors(self) -> int:
        """Vectors among which completion queues choose."""
        return max(self.card.context.device.vectors - 2, 1)

    def query_device(self) -> DeviceAttr:
        """Limits and capabilities."""
        driver = self.card.context
        resize = driver.device.has(RdmaFeature.RESIZE) and driver.device.has(RdmaFeature.SRQ)
        attr = DeviceAttr(driver.query_device(), resize=resize)
        if self.card.vendor is not None:
            attr.vendor_id, attr.vendor_part_id = self.card.vendor
        return attr

    def query_device_ex(self, ex_input: Any = None) -> DeviceAttrEx:
        """The same, and those of extensions, of which the card has none."""
        return DeviceAttrEx(self.query_device())

    def query_port(self, port_num: int) -> PortAttr:
        """State and properties of a port."""
        work = self.card.context.query_port(port_num)
        return PortAttr(ask(self.card, work, f"Failed to query port {port_num}"))

    def query_pkey(self, port_num: int, index: int) -> int:
        """An entry of the partition key table, in network order."""
        failed = f"Failed to query pkey index {index} of port {port_num}"
        pkey = ask(self.card, self.card.context.query_pkey(port_num, index), failed)
        return int.from_bytes(pkey.to_bytes(2, "big"), "little")

    def get_pkey_index(self, port_num: int, pkey: int) -> int:
        """The place of a partition key, which is in network order."""
        for index in range(self.query_port(port_num).pkey_tbl_len):
            if self.query_pkey(port_num, index) == pkey:
                return index
        raise PyverbsRDMAError(f"Failed to query pkey index of {pkey}", errno.ENOENT)

    def query_gid(self, port_num: int, index: int) -> GID:
        """An entry of the port's address table; zero when it is empty."""
        self._check_gid(port_num, index, f"Failed to query gid {index} of port {port_num}")
        return GID(self.card.context.gids(port_num).get(index, bytes(16)))

    def query_gid_type(self, port_num: int, index: int) -> int:
        """IBV_GID_TYPE_SYSFS_ROCE_V2: the card has no others."""
        failed = f"Failed to query gid type of port {port_num} and gid index {index}"
        self._check_gid(port_num, index, failed)
        return int(enums.IBV_GID_TYPE_SYSFS_ROCE_V2)

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> GIDEntry:
        """An entry with what belongs to it; ENODATA when it is empty."""
        failed = f"Failed to query gid table of port {port_num} and gid index {gid_index}"
        self._check_gid(port_num, gid_index, failed)
        raw = self.card.context.gids(port_num).get(gid_index)
        if raw is None:
            raise PyverbsRDMAError(failed, errno.ENODATA)
        return GIDEntry(raw, gid_index, port_num)

    def query_gid_table(self, max_entries: int, flags: int = 0) -> list[GIDEntry]:
        """All entries; -EINVAL when they are more than ``max_entries``."""
        found = [GIDEntry(raw, index, 1) for index, raw in self.card.context.gids().items()]
        if len(found) > max_entries:
            raise PyverbsRDMAError("Failed to query gid table", -errno.EINVAL)
        return found

    def _check_gid(self, port_num: int, index: int, failed: str) -> None:
        if port_num != 1 or not 0 <= index < self.card.node.testbench.config.guest.gids:
            raise PyverbsRDMAError(failed, errno.EINVAL)

    def query_rt_values_ex(self, comp_mask: int = 1) -> Any:
        """The card's clock cannot be read: EOPNOTSUPP."""
        raise PyverbsRDMAError("Failed to query real time values", errno.EOPNOTSUPP)

    def get_async_event(self) -> AsyncEvent:
        """Waits for the next asynchronous event."""

        async def wait() -> GuestEvent:
            if self.card.context.events is None:
                raise RdmaError(errno.EOPNOTSUPP, "Events were not negotiated")
            inbox = self.card.inboxes.waiting(self)
            await self.card.errands.until(lambda: bool(inbox))
            return inbox.popleft()

        return AsyncEvent(ask(self.card, wait(), "Failed to get async event"))

    def _destroy(self) -> None:
        self.card.inboxes.close(self)
        os.close(self.cmd_fd)


class AsyncEvent(PyverbsObject):
    """An asynchronous event. ``number``: of the object that it is about."""

    def __init__(self, event: GuestEvent):
        super().__init__()
        self.event_type, self.number = int(event.event), event.number

    def ack(self) -> None:
        """Nothing: the event was taken when it was read."""

    def __str__(self) -> str:
        return f"Async event {translate_event_type(self.event_type)}"


def rdma_get_devices() -> list[Context]:
    """A context of each device."""
    return [Context(name=card.name) for card in cards.cards()]


# Names of numbers -------------------------------------------------------------------------------

_WIDTHS = {1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"}
_SPEEDS = {1: 2.5, 2: 5.0, 4: 5.0, 8: 10.0, 16: 14.0, 32: 25.0, 64: 50.0, 128: 100.0}
_LAYERS = {0: "Unspecified", 1: "InfiniBand", 2: "Ethernet"}
_PHYSICAL = {
    **{0: "No state change", 1: "Sleep", 2: "Polling", 3: "Disabled"},
    **{4: "Port configuration training", 5: "Link up", 6: "Link error recovery", 7: "Phy test"},
}


def guid_format(num: int) -> str:
    """A GUID, which is in network order, in four groups of four digits."""
    digits = num.to_bytes(8, sys.byteorder).hex()
    return ":".join(digits[i : i + 4] for i in range(0, 16, 4))


def guid_to_hex(node_guid: int) -> str:
    """A GUID as one number."""
    return f"{node_guid:#018x}"


def translate_transport_type(transport_type: int) -> str:
    """IB, IWARP and the like."""
    return name_of("ibv_transport_type", "IBV_TRANSPORT_", transport_type)


def translate_node_type(node_type: int) -> str:
    """CA, RNIC and the like."""
    return name_of("ibv_node_type", "IBV_NODE_", node_type)


def translate_gid_type(gid_type: int) -> str:
    """ROCE_V2 and the like."""
    return name_of("ibv_gid_type", "IBV_GID_TYPE_", gid_type)


def translate_event_type(event_type: int) -> str:
    """IBV_EVENT_QP_FATAL and the like."""
    return name_of("ibv_event_type", "", event_type)


def port_state_to_str(port_state: int) -> str:
    """Active, Down and the like."""
    name = name_of("ibv_port_state", "IBV_PORT_", port_state).capitalize()
    return f"{name} ({port_state})"


def translate_mtu(mtu: int) -> str:
    """Bytes of payload."""
    return f"{128 << mtu} ({mtu})" if 1 <= mtu <= 5 else f"Invalid MTU ({mtu})"


def translate_link_layer(layer: int) -> str:
    """Ethernet and the like."""
    return _LAYERS.get(layer, "Unknown")


def phys_state_to_str(state: int) -> str:
    """Link up and the like."""
    return f"{_PHYSICAL.get(state, 'Invalid physical state')} ({state})"


def width_to_str(width: int) -> str:
    """Lanes."""
    return f"{_WIDTHS.get(width, 'Invalid width')} ({width})"


def speed_to_str(active_speed: int, active_speed_ex: int = 0) -> str:
    """Gb/s of a lane."""
    speed = active_speed_ex or active_speed
    return f"{_SPEEDS[speed]} Gbps ({speed})" if speed in _SPEEDS else f"Invalid speed ({speed})"


def translate_device_caps(flags: int) -> str:
    """The names of capabilities of a device."""
    return names_of("ibv_device_cap_flags", "IBV_DEVICE_", flags)


def translate_port_cap_flags(flags: int) -> str:
    """The names of capabilities of a port."""
    return names_of("ibv_port_cap_flags", "IBV_PORT_", flags)


def translate_port_cap_flags2(flags: int) -> str:
    """The names of further capabilities of a port."""
    return names_of("ibv_port_cap_flags2", "IBV_PORT_", flags)
