"""Structures and numbers of the network device.

Spec: Virtio 1.2, 5.1 (network device).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from hdl.abi.layout import Struct, byte_array, le16, le32, u8

__all__ = [
    "CONTROL_HEADER",
    "DUPLEX_FULL",
    "HASH_KEY_BYTES",
    "HASH_TYPES",
    "LARGEST_MTU",
    "MAC_BYTES",
    "MTU",
    "NET_CONFIG",
    "RSS_HEAD",
    "RSS_TABLE",
    "RSS_TAIL",
    "SPEED_UNKNOWN",
    "TYPE_FEATURES",
    "ControlAck",
    "HashType",
    "MacCommand",
    "MqCommand",
    "NetClass",
    "NetStatus",
    "RxCommand",
]

#: Features 0 to 23 and those from 50 on belong to the device type (2.2): all of them are shown.
TYPE_FEATURES = 64
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
    u8("rss_max_key_size"),
    le16("rss_max_indirection_table_length"),
    le32("supported_hash_types"),
)

#: In front of each control command (5.1.6.5); behind it a byte ``ControlAck``.
CONTROL_HEADER = Struct("virtio_net_ctrl", u8("class_"), u8("command"))


#: Bytes of a hash's key, entries of the table of queues: the fewest that there may be (5.1.4.1).
HASH_KEY_BYTES, RSS_TABLE = 40, 128
#: A command that says how frames are spread over queues (5.1.6.5.7): RSS_HEAD, so many entries of
#: a table as its mask says, of 16 bits each, RSS_TAIL and the key.
RSS_HEAD = Struct(
    "virtio_net_rss_head",
    le32("hash_types"),
    le16("indirection_table_mask"),
    le16("unclassified_queue"),
)
RSS_TAIL = Struct("virtio_net_rss_tail", le16("max_tx_vq"), u8("hash_key_length"))


class HashType(IntFlag):
    """What of a packet a hash is of (5.1.6.4.3.1); other types are not supported."""

    IPV4 = 1
    TCPV4 = 2
    UDPV4 = 4
    IPV6 = 8
    TCPV6 = 16
    UDPV6 = 32


#: Bits of ``HashType``.
HASH_TYPES = len(HashType)


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
    """The pairs of queues that are used (5.1.6.5.5), and how frames are spread (5.1.6.5.7)."""

    VQ_PAIRS_SET = 0
    RSS_CONFIG = 1


class ControlAck(IntEnum):
    """Answer to a control command (5.1.6.5)."""

    OK = 0
    ERR = 1
