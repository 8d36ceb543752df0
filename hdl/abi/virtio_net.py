"""Structures and numbers of the network device.

Spec: Virtio 1.2, 5.1 (network device).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from hdl.abi.layout import Struct, byte_array, le16, le32, u8

__all__ = [
    "CONTROL_HEADER",
    "DUPLEX_FULL",
    "LARGEST_MTU",
    "MAC_BYTES",
    "MTU",
    "NET_CONFIG",
    "SPEED_UNKNOWN",
    "TYPE_FEATURES",
    "ControlAck",
    "MacCommand",
    "MqCommand",
    "NetClass",
    "NetStatus",
    "RxCommand",
]

#: Features 0 to 23 belong to the device type.
TYPE_FEATURES = 24
MAC_BYTES = 6
#: MTU of Ethernet, bytes, and the largest that the card carries, with a VLAN tag or without.
MTU, LARGEST_MTU = 1500, 9216
#: Values of ``speed`` and ``duplex`` (5.1.4).
SPEED_UNKNOWN = 0xFFFF_FFFF
DUPLEX_FULL = 1

#: Device configuration (5.1.4), up to the last field of a feature that is offered.
NET_CONFIG = Struct(
    "virtio_net_config",
    byte_array("mac", MAC_BYTES),
    le16("status"),
    le16("max_virtqueue_pairs"),
    le16("mtu"),
    le32("speed"),
    u8("duplex"),
    byte_array("reserved", 3),
)

#: In front of each control command (5.1.6.5); behind it a byte ``ControlAck``.
CONTROL_HEADER = Struct("virtio_net_ctrl", u8("class_"), u8("command"))


class NetStatus(IntFlag):
    """``status`` of the device configuration (5.1.4)."""

    LINK_UP = 1
    ANNOUNCE = 2


class NetClass(IntEnum):
    """Classes of control commands (5.1.6.5)."""

    RX = 0
    MAC = 1
    VLAN = 2
    ANNOUNCE = 3
    MQ = 4


class RxCommand(IntEnum):
    """Which frames are received (5.1.6.5.1)."""

    PROMISC = 0
    ALLMULTI = 1
    ALLUNI = 2
    NOMULTI = 3
    NOUNI = 4
    NOBCAST = 5


class MacCommand(IntEnum):
    """The MAC addresses that are received (5.1.6.5.2)."""

    TABLE_SET = 0
    ADDR_SET = 1


class MqCommand(IntEnum):
    """The pairs of queues that are used (5.1.6.5.5)."""

    VQ_PAIRS_SET = 0


class ControlAck(IntEnum):
    """Answer to a control command (5.1.6.5)."""

    OK = 0
    ERR = 1
