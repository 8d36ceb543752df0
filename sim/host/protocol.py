"""vfio-user's messages: numbers and layouts.

Spec: QEMU, docs/interop/vfio-user.rst, protocol version 0.0; structures and numbers that it takes
from Linux: include/uapi/linux/vfio.h. Everything is in the byte order of the machine.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct

MAJOR, MINOR = 0, 0
#: What either side may move in one message, and file descriptors that a client may send in one.
MOST_DATA, MOST_FILES = 1 << 20, 32
#: Pieces of a client's memory.
MOST_PIECES = 65535
PAGE_SIZES = 4096

#: Message id, command, size of the whole message, flags, error.
HEADER = Struct("=HHIII")
TYPE, REPLY, NO_REPLY, ERROR = 0xF, 0x1, 0x10, 0x20


class Command(IntEnum):
    """What a message asks for; those of DMA come from the server."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_REGION_IO_FDS = 6
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    DEVICE_RESET = 13
    REGION_WRITE_MULTI = 15
    DEVICE_FEATURE = 16


#: major, minor; a JSON text that ends with a zero byte may follow.
VERSION = Struct("=HH")
#: argsz, flags (``Rights``), offset in the file, address, size.
DMA_MAP = Struct("=IIQQQ")
#: argsz, flags, address, size.
DMA_UNMAP = Struct("=IIQQ")
UNMAP_ALL = 2
#: argsz, flags, regions, kinds of interrupts.
DEVICE_INFO = Struct("=IIII")
#: argsz, flags, index, offset of capabilities, size, offset for mmap.
REGION_INFO = Struct("=IIIIQQ")
#: argsz, flags, index, count.
IRQ_INFO = Struct("=IIII")
#: argsz, flags, index, start, count; a byte for each may follow.
IRQ_SET = Struct("=IIIII")
#: offset, region, count; the bytes follow.
REGION_ACCESS = Struct("=QII")
#: Writes that follow; each is a REGION_ACCESS with 8 bytes behind it.
WRITE_MULTI = Struct("=Q")
MULTI_BYTES = 8
#: address, count; the bytes follow.
DMA_ACCESS = Struct("=QQ")


class Rights(IntFlag):
    """Flags of DMA_MAP."""

    READABLE = 1
    WRITABLE = 2


class DeviceFlag(IntFlag):
    """Flags of DEVICE_GET_INFO."""

    RESET = 1
    PCI = 2


class Region(IntEnum):
    """Regions of a PCI device. BARs have their numbers."""

    BAR0 = 0
    BAR5 = 5
    ROM = 6
    CONFIG = 7
    VGA = 8


REGIONS = 9


class RegionFlag(IntFlag):
    """Flags of DEVICE_GET_REGION_INFO."""

    READ = 1
    WRITE = 2


class Irq(IntEnum):
    """Kinds of interrupts of a PCI device."""

    INTX = 0
    MSI = 1
    MSIX = 2
    ERR = 3
    REQ = 4


class IrqFlag(IntFlag):
    """Flags of DEVICE_GET_IRQ_INFO."""

    EVENTFD = 1
    MASKABLE = 2
    AUTOMASKED = 4


class IrqData(IntFlag):
    """What follows DEVICE_SET_IRQS: nothing, a byte for each, or descriptors beside it."""

    NONE = 1
    BOOL = 2
    EVENTFD = 4


class IrqAction(IntFlag):
    """What DEVICE_SET_IRQS does."""

    MASK = 8
    UNMASK = 16
    TRIGGER = 32
