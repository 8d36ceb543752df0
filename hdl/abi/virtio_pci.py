"""Structures and numbers of modern virtio over PCI, and of the split virtqueue.

Spec: Virtio 1.2, 2.7 (split virtqueues), 4.1 (PCI), 6 (feature bits); PCI Local Bus 3.0, 6.1
(header) and 6.8.2 (MSI-X).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from hdl.abi.layout import Scalar, Struct, array, byte_array, le16, le32, le64, u8

VENDOR_ID = 0x1AF4
DEVICE_ID_BASE = 0x1040
DEVICE_TYPE_NET = 1
DEVICE_TYPE_RDMA = 42
DEVICE_ID_NET = DEVICE_ID_BASE + DEVICE_TYPE_NET
DEVICE_ID_RDMA = DEVICE_ID_BASE + DEVICE_TYPE_RDMA
#: Lowest revision of a non-transitional device (4.1.2.1).
REVISION_ID = 1

#: "BAR number" by which a driver's MMIO service names the configuration space of a function.
CONFIG_SPACE = 7
#: Highest BAR that a capability may name (4.1.4).
MAX_BAR = 5
CONFIG_SPACE_SIZE = 4096

#: Reads as this when a vector is unset or could not be taken (4.1.5.1.2).
NO_VECTOR = 0xFFFF

MAX_QUEUE_SIZE = 32768
DESC_ALIGN, AVAIL_ALIGN, USED_ALIGN = 16, 2, 4
#: Of the event suppression structures of a packed virtqueue (2.8).
EVENT_ALIGN = 4


class Feature(IntEnum):
    """Transport feature bit numbers (6). 0-23 and 50-127 belong to the device type."""

    INDIRECT_DESC = 28
    EVENT_IDX = 29
    VERSION_1 = 32
    ACCESS_PLATFORM = 33
    RING_PACKED = 34
    IN_ORDER = 35
    ORDER_PLATFORM = 36
    SR_IOV = 37
    NOTIFICATION_DATA = 38
    NOTIF_CONFIG_DATA = 39
    RING_RESET = 40

    @property
    def mask(self) -> int:
        """The feature as a bit of the 64-bit feature word."""
        return 1 << self.value


class NetFeature(IntEnum):
    """virtio-net feature bit numbers (5.1.3)."""

    CSUM = 0
    GUEST_CSUM = 1
    MTU = 3
    MAC = 5
    MRG_RXBUF = 15
    STATUS = 16
    CTRL_VQ = 17
    CTRL_RX = 18
    CTRL_RX_EXTRA = 20
    GUEST_ANNOUNCE = 21
    MQ = 22
    CTRL_MAC_ADDR = 23
    RSS = 60
    SPEED_DUPLEX = 63

    @property
    def mask(self) -> int:
        """The feature as a bit of the 64-bit feature word."""
        return 1 << self.value


class Status(IntFlag):
    """Device status (2.1)."""

    ACKNOWLEDGE = 1
    DRIVER = 2
    DRIVER_OK = 4
    FEATURES_OK = 8
    DEVICE_NEEDS_RESET = 64
    FAILED = 128


class CapId(IntEnum):
    """PCI capability ids."""

    MSI = 0x05
    VENDOR = 0x09
    PCI_EXPRESS = 0x10
    MSIX = 0x11


class CfgType(IntEnum):
    """What a virtio capability points at (4.1.4)."""

    COMMON = 1
    NOTIFY = 2
    ISR = 3
    DEVICE = 4
    PCI_CFG = 5


#: Of a vendor capability that is no structure of virtio: it says where a copy of the configuration
#: space is, with the virtio capabilities in it. A driver of virtio passes over types it does not
#: know (4.1.4).
CFG_TYPE_LIST = 0xF0


class Isr(IntFlag):
    """ISR status; reading clears it and deasserts INTx (4.1.4.5)."""

    QUEUE = 1
    CONFIG = 2


class DescFlags(IntFlag):
    """Descriptor flags (2.7.5)."""

    NEXT = 1
    WRITE = 2
    INDIRECT = 4


class PackedFlags(IntFlag):
    """Flags of a descriptor in a packed ring that say whose it is (2.8.1), beside DescFlags."""

    AVAIL = 1 << 7
    USED = 1 << 15


class EventFlags(IntEnum):
    """Flags of an event suppression structure (2.8.14)."""

    ENABLE = 0
    DISABLE = 1
    DESC = 2


class AvailFlags(IntFlag):
    """Available ring flags (2.7.6)."""

    NO_INTERRUPT = 1


class UsedFlags(IntFlag):
    """Used ring flags (2.7.8)."""

    NO_NOTIFY = 1


class PciCommand(IntFlag):
    """PCI command register."""

    IO_SPACE = 1 << 0
    MEMORY_SPACE = 1 << 1
    BUS_MASTER = 1 << 2
    INTX_DISABLE = 1 << 10


class PciStatus(IntFlag):
    """PCI status register."""

    INTERRUPT = 1 << 3
    CAPABILITIES = 1 << 4


class MsixControl(IntFlag):
    """MSI-X message control; the low 11 bits hold the table size - 1."""

    TABLE_SIZE = 0x7FF
    FUNCTION_MASK = 1 << 14
    ENABLE = 1 << 15


#: Low bits of the MSI-X table and PBA words: number of the BAR; the rest is the offset in it.
MSIX_BIR_MASK = 7
#: Bit of an MSI-X entry's vector control that masks the vector.
MSIX_VECTOR_MASKED = 1

PCI_HEADER = Struct(
    "pci_header",
    le16("vendor_id"),
    le16("device_id"),
    le16("command", "PciCommand"),
    le16("status", "PciStatus"),
    u8("revision_id"),
    byte_array("class_code", 3),
    u8("cache_line_size"),
    u8("latency_timer"),
    u8("header_type", "bit 7: more functions"),
    u8("bist"),
    array("bar", Scalar(4), 6),
    le32("cardbus_cis"),
    le16("subsystem_vendor_id"),
    le16("subsystem_id"),
    le32("rom"),
    u8("capabilities"),
    byte_array("reserved", 7),
    u8("interrupt_line"),
    u8("interrupt_pin"),
    u8("min_gnt"),
    u8("max_lat"),
)
PCI_CAP_HEADER = Struct("pci_cap_header", u8("cap_id", "CapId"), u8("cap_next"))
VIRTIO_PCI_CAP = Struct(
    "virtio_pci_cap",
    u8("cap_vndr", "CapId.VENDOR"),
    u8("cap_next"),
    u8("cap_len"),
    u8("cfg_type", "CfgType"),
    u8("bar"),
    u8("id"),
    byte_array("padding", 2),
    le32("offset"),
    le32("length"),
)
VIRTIO_PCI_NOTIFY_CAP = Struct(
    "virtio_pci_notify_cap",
    *VIRTIO_PCI_CAP.fields,
    le32("notify_off_multiplier", "0 or an even power of two"),
)
VIRTIO_PCI_CFG_CAP = Struct(
    "virtio_pci_cfg_cap",
    *VIRTIO_PCI_CAP.fields,
    byte_array("pci_cfg_data", 4, "window on bar, offset, length"),
)
MSIX_CAP = Struct(
    "msix_cap",
    u8("cap_id", "CapId.MSIX"),
    u8("cap_next"),
    le16("message_control", "MsixControl"),
    le32("table", "offset | BAR"),
    le32("pba", "offset | BAR"),
)
MSIX_ENTRY = Struct(
    "msix_entry",
    le64("message_address"),
    le32("message_data"),
    le32("vector_control"),
)
COMMON_CFG = Struct(
    "virtio_pci_common_cfg",
    le32("device_feature_select"),
    le32("device_feature"),
    le32("driver_feature_select"),
    le32("driver_feature"),
    le16("config_msix_vector"),
    le16("num_queues"),
    u8("device_status", "Status"),
    u8("config_generation"),
    le16("queue_select"),
    le16("queue_size", "0: no such queue"),
    le16("queue_msix_vector"),
    le16("queue_enable"),
    le16("queue_notify_off"),
    le64("queue_desc"),
    le64("queue_driver", "available ring"),
    le64("queue_device", "used ring"),
    le16("queue_notify_data"),
    le16("queue_reset"),
)
#: What a driver writes as a doorbell when NOTIFICATION_DATA is on (2.9). For a split ring next_off
#: and next_wrap together are the 16-bit available index.
NOTIFICATION = Struct("virtio_notification", le16("vqn"), le16("next", "next_off, next_wrap"))

# Split virtqueue -------------------------------------------------------------------------------

DESC = Struct("virtq_desc", le64("addr"), le32("len"), le16("flags", "DescFlags"), le16("next"))
#: Start of both rings; the elements follow, then one le16 (used_event or avail_event).
#: Of a packed virtqueue (2.8.13, 2.8.14).
PACKED_DESC = Struct(
    "pvirtq_desc",
    le64("addr"),
    le32("len"),
    le16("id", "of the buffer"),
    le16("flags", "DescFlags, PackedFlags"),
)
EVENT_SUPPRESS = Struct(
    "pvirtq_event_suppress",
    le16("desc", "bits 14:0 offset, bit 15 wrap counter"),
    le16("flags", "bits 1:0 EventFlags"),
)
RING_HEADER = Struct("virtq_ring_header", le16("flags"), le16("idx"))
AVAIL_ELEMENT = Struct("virtq_avail_elem", le16("id"))
USED_ELEMENT = Struct("virtq_used_elem", le32("id"), le32("len"))
EVENT_SIZE = 2

STRUCTS: tuple[Struct, ...] = (
    PCI_HEADER,
    PCI_CAP_HEADER,
    VIRTIO_PCI_CAP,
    VIRTIO_PCI_NOTIFY_CAP,
    VIRTIO_PCI_CFG_CAP,
    MSIX_CAP,
    MSIX_ENTRY,
    COMMON_CFG,
    NOTIFICATION,
    DESC,
    RING_HEADER,
    AVAIL_ELEMENT,
    USED_ELEMENT,
)


def desc_table_size(queue_size: int) -> int:
    """Bytes of a descriptor table."""
    return DESC.size * queue_size


def avail_ring_size(queue_size: int) -> int:
    """Bytes of an available ring with its used_event."""
    return RING_HEADER.size + AVAIL_ELEMENT.size * queue_size + EVENT_SIZE


def used_ring_size(queue_size: int) -> int:
    """Bytes of a used ring with its avail_event."""
    return RING_HEADER.size + USED_ELEMENT.size * queue_size + EVENT_SIZE


def used_event_offset(queue_size: int) -> int:
    """Offset of used_event in the available ring."""
    return RING_HEADER.size + AVAIL_ELEMENT.size * queue_size


def avail_event_offset(queue_size: int) -> int:
    """Offset of avail_event in the used ring."""
    return RING_HEADER.size + USED_ELEMENT.size * queue_size
