"""A virtio PCI function in plain Python, with rings that it walks in guest memory.

It stands in for the RTL in tests of the driver and shares nothing with it but ``hdl.abi``. What
the driver must never do is asserted here.
"""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from hdl.abi import virtio_pci as abi
from hdl.abi import virtio_rdma
from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_pci import CapId, CfgType, DescFlags, Feature, MsixControl, Status
from sim.guest.driver.memory import GuestMemory
from sim.guest.driver.platform import Message

FUNCTION = 1
BAR = 2
COMMON, ISR, DEVICE, NOTIFY, TABLE = 0x000, 0x100, 0x200, 0x1000, 0x2000
MULTIPLIER = 4
_LACKING = (
    Feature.RING_PACKED,
    Feature.SR_IOV,
    Feature.NOTIF_CONFIG_DATA,
    RdmaFeature.PUSH,
)
OFFERED = sum(f.mask for f in (*Feature, *RdmaFeature) if f not in _LACKING)


class FakePlatform:
    """One guest whose device acts when its doorbell rings or when the guest sleeps."""

    def __init__(self, *, size=16 << 20, base=0x1_0000_0000, seed=1):
        self.memory = GuestMemory(np.zeros(size, np.uint8), base=base, seed=seed)
        self.device = None
        self.time = 0
        self.handlers = {}
        self.mmio = self.interrupts = self

    def now(self):
        return self.time

    async def wait_event(self, timeout_ns):
        until = self.time + timeout_ns
        await asyncio.sleep(0)
        self.time = max(self.time, until)
        self.device.step()

    async def read(self, function, bar, addr, size):
        assert size in (1, 2, 4)
        await asyncio.sleep(0)
        if function != FUNCTION:
            return (1 << 8 * size) - 1
        return self.device.mmio_read(bar, addr, size)

    async def write(self, function, bar, addr, size, value):
        assert size in (1, 2, 4) and 0 <= value < 1 << 8 * size
        await asyncio.sleep(0)
        if function == FUNCTION:
            self.device.mmio_write(bar, addr, size, value)

    def allocate(self, handler):
        message = Message(0xFEE0_0000 + 16 * len(self.handlers), 0x4000 + len(self.handlers))
        self.handlers[message] = handler
        return message

    def release(self, message):
        self.handlers[message] = lambda: None


@dataclass
class Chain:
    """A chain taken from a ring."""

    head: int
    readable: list
    writable: list
    indirect: bool


@dataclass
class Queue:
    """Device side of one virtqueue."""

    largest: int
    values: dict = field(default_factory=dict)
    seen: int = 0
    used: int = 0
    doorbells: list = field(default_factory=list)

    def clear(self):
        self.values = {"queue_size": self.largest, "queue_msix_vector": abi.NO_VECTOR}
        self.seen = self.used = 0


class FakePci:
    """The function: configuration space, registers, rings. Subclasses act on doorbells."""

    device_type = abi.DEVICE_TYPE_RDMA

    def __init__(self, platform, *, queues, config, queue_size=256, vectors=4, offered=OFFERED):
        self.platform, self.memory = platform, platform.memory
        platform.device = self
        self.config, self.offered = config, offered
        self.queues = [Queue(queue_size) for _ in range(queues)]
        self.table = np.zeros(vectors * abi.MSIX_ENTRY.size, np.uint8)
        self.msix_control = 0
        self.needs_reset_after = self.reset_reads = 0
        self.no_notify = False
        self.refuse = 0
        self.chains_seen = {"direct": 0, "indirect": 0, "longest": 0}
        self._build_space()
        self.reset()

    def _build_space(self):
        self.space = bytearray(256)
        self.space[: abi.PCI_HEADER.size] = abi.PCI_HEADER.pack(
            vendor_id=abi.VENDOR_ID,
            device_id=abi.DEVICE_ID_BASE + self.device_type,
            revision_id=1,
            status=abi.PciStatus.CAPABILITIES,
            capabilities=0x40,
        )
        windows = [
            (CfgType.COMMON, COMMON, abi.COMMON_CFG.size),
            (CfgType.ISR, ISR, 1),
            (CfgType.DEVICE, DEVICE, len(self.config)),
            (CfgType.NOTIFY, NOTIFY, MULTIPLIER * len(self.queues)),
            (CfgType.PCI_CFG, 0, 0),
        ]
        addr = 0x40
        self.cap_addr = {}
        for kind, offset, length in windows:
            struct = {
                CfgType.NOTIFY: abi.VIRTIO_PCI_NOTIFY_CAP,
                CfgType.PCI_CFG: abi.VIRTIO_PCI_CFG_CAP,
            }.get(kind, abi.VIRTIO_PCI_CAP)
            extra = {"notify_off_multiplier": MULTIPLIER} if kind == CfgType.NOTIFY else {}
            self.cap_addr[kind] = addr
            following = addr + struct.size
            self.space[addr:following] = struct.pack(
                cap_vndr=CapId.VENDOR,
                cap_next=following,
                cap_len=struct.size,
                cfg_type=kind,
                bar=BAR,
                offset=offset,
                length=length,
                **extra,
            )
            addr = following
        self.msix_addr = addr
        entries = self.table.size // abi.MSIX_ENTRY.size
        self.space[addr : addr + abi.MSIX_CAP.size] = abi.MSIX_CAP.pack(
            cap_id=CapId.MSIX, message_control=entries - 1, table=TABLE | BAR
        )

    def reset(self):
        """Back to the state after power-on."""
        self.common = {"config_msix_vector": abi.NO_VECTOR}
        self.status = self.driver_features = self.isr = 0
        for queue in self.queues:
            queue.clear()

    # Register accesses --------------------------------------------------------------------------

    def mmio_read(self, bar, addr, size):
        if bar == abi.CONFIG_SPACE:
            cfg = self.cap_addr[CfgType.PCI_CFG]
            if addr == cfg + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data"):
                return self.mmio_read(*self._window(size))
            if addr == self.msix_addr and size == 4:
                self.space[addr + 2 : addr + 4] = (self.msix_control | self.entries - 1).to_bytes(
                    2, "little"
                )
            return int.from_bytes(self.space[addr : addr + size], "little")
        if bar == virtio_rdma.COUNTER_BAR:
            return self.counter_word(addr)
        assert bar == BAR
        if addr < ISR:
            return self._common_read(addr, size)
        if addr == ISR:
            value, self.isr = self.isr, 0
            return value
        if DEVICE <= addr < NOTIFY:
            return int.from_bytes(self.config[addr - DEVICE : addr - DEVICE + size], "little")
        return int.from_bytes(self.table[addr - TABLE : addr - TABLE + size].tobytes(), "little")

    def counter_word(self, addr):
        """BAR 0 of a device that has none."""
        return 0xFFFFFFFF

    def mmio_write(self, bar, addr, size, value):
        octets = value.to_bytes(size, "little")
        if bar == virtio_rdma.COUNTER_BAR:
            assert (addr, size) == (virtio_rdma.QP_COUNTER_OFFSET, 4)
            self.counted_qpn = value
            return
        if bar == abi.CONFIG_SPACE:
            cfg = self.cap_addr[CfgType.PCI_CFG]
            if addr == cfg + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data"):
                bar, addr, size = self._window(size)
                return self.mmio_write(bar, addr, size, value)
            if addr == self.msix_addr + abi.MSIX_CAP.offset("message_control"):
                self.msix_control = value & ~MsixControl.TABLE_SIZE
            else:
                self.space[addr : addr + size] = octets
            return None
        assert bar == BAR
        if addr < ISR:
            return self._common_write(addr, size, value)
        if addr >= TABLE:
            self.table[addr - TABLE : addr - TABLE + size] = np.frombuffer(octets, np.uint8)
        elif addr >= NOTIFY:
            self._doorbell((addr - NOTIFY) // MULTIPLIER, size, value)
        return None

    @property
    def entries(self):
        return self.table.size // abi.MSIX_ENTRY.size

    def _window(self, size):
        cap = abi.VIRTIO_PCI_CAP.unpack(self.space[self.cap_addr[CfgType.PCI_CFG] :])
        assert cap.length == size and cap.offset % size == 0
        return cap.bar, cap.offset, size

    def _field(self, addr, size):
        for place in abi.COMMON_CFG.places():
            if place.size == size and place.offset == addr:
                return place.path, 0
            if place.size == 8 and size == 4 and addr - place.offset in (0, 4):
                return place.path, 8 * (addr - place.offset)
        raise AssertionError(f"No field of {size} bytes at {addr:#x} in the common configuration")

    def _selected(self):
        index = self.common.get("queue_select", 0)
        return self.queues[index] if index < len(self.queues) else Queue(0)

    def _common_read(self, addr, size):
        name, shift = self._field(addr, size)
        if name == "device_status":
            if not self.status and self.reset_reads:
                self.reset_reads -= 1
                return 0xFF
            return self.status
        if name == "num_queues":
            return len(self.queues)
        if name == "queue_notify_off":
            return self.common["queue_select"]
        if name in ("device_feature", "driver_feature"):
            word = self.offered if name == "device_feature" else self.driver_features
            half = self.common.get(f"{name}_select", 0)
            return word >> 32 * half & 0xFFFFFFFF if half < 2 else 0
        if name == "queue_reset" and self._selected().values.get(name):
            self._selected().clear()
            return 1
        if name.startswith("queue_") and name != "queue_select":
            return self._selected().values.get(name, 0) >> shift & (1 << 8 * size) - 1
        return self.common.get(name, 0)

    def _common_write(self, addr, size, value):
        name, shift = self._field(addr, size)
        if name == "device_status":
            if not value:
                return self.reset()
            assert self.status & ~value == 0, "a driver never clears a status bit"
            if value & Status.FEATURES_OK and self.driver_features & self.refuse:
                value &= ~Status.FEATURES_OK
            self.status = value
        elif name == "driver_feature":
            assert not self.status & Status.FEATURES_OK
            half = 32 * self.common["driver_feature_select"]
            self.driver_features &= ~(0xFFFFFFFF << half)
            self.driver_features |= value << half
        elif name.startswith("queue_") and name != "queue_select":
            values = self._selected().values
            assert name == "queue_reset" or not values.get("queue_enable"), name
            if name == "queue_msix_vector" and value >= self.entries:
                value = abi.NO_VECTOR
            values[name] = values.get(name, 0) & ~(((1 << 8 * size) - 1) << shift) | value << shift
            if name == "queue_enable":
                assert self.status & Status.FEATURES_OK
                for path, align in (("desc", 16), ("driver", 2), ("device", 4)):
                    assert values[f"queue_{path}"] % align == 0
        else:
            self.common[name] = value
        return None

    def _doorbell(self, index, size, value):
        queue = self.queues[index]
        if self.has(Feature.NOTIFICATION_DATA):
            assert size == 4 and value & 0xFFFF == index
            assert (self.avail_idx(queue) - (value >> 16)) & 0xFFFF < queue.largest
        else:
            assert size == 2 and value == index
        queue.doorbells.append(value)
        if self.status & Status.DRIVER_OK:
            self.serve(index)

    def serve(self, index):
        """Acts on queue ``index``; for subclasses."""

    def step(self):
        """What the device does while the guest sleeps: look at rings without doorbells."""
        if self.no_notify and self.status & Status.DRIVER_OK:
            for index in range(len(self.queues)):
                self.serve(index)

    # Rings --------------------------------------------------------------------------------------

    def has(self, feature):
        return bool(self.driver_features & feature.mask)

    def load(self, addr, size):
        start = addr - self.memory.base
        assert start >= 0 and start + size <= self.memory.bytes.size, f"DMA to {addr:#x}"
        return self.memory.bytes[start : start + size].tobytes()

    def store(self, addr, data):
        start = addr - self.memory.base
        assert start >= 0 and start + len(data) <= self.memory.bytes.size, f"DMA to {addr:#x}"
        self.memory.bytes[start : start + len(data)] = np.frombuffer(data, np.uint8)

    def _load16(self, addr):
        return int.from_bytes(self.load(addr, 2), "little")

    def avail_idx(self, queue):
        return self._load16(queue.values["queue_driver"] + 2)

    def waiting(self, index):
        """Chains available in a queue and not yet taken."""
        queue = self.queues[index]
        if not queue.values.get("queue_enable"):
            return 0
        return (self.avail_idx(queue) - queue.seen) & 0xFFFF

    def take(self, index):
        """The next available chain, or None; then asks for (or declines) doorbells."""
        queue = self.queues[index]
        if not self.waiting(index):
            self._suppress(queue)
            return None
        size = queue.values["queue_size"]
        assert self.waiting(index) <= size
        slot = queue.values["queue_driver"] + 4 + 2 * (queue.seen % size)
        head = self._load16(slot)
        queue.seen = (queue.seen + 1) & 0xFFFF
        return self._walk(queue.values["queue_desc"], size, head)

    def _walk(self, table, size, head):
        readable, writable, indirect, index, count = [], [], False, head, 0
        while True:
            desc = abi.DESC.unpack(self.load(table + 16 * index, 16))
            if desc.flags & DescFlags.INDIRECT:
                assert self.has(Feature.INDIRECT_DESC) and not indirect and not readable
                assert desc.flags == DescFlags.INDIRECT and desc.len % 16 == 0
                table, size, index, indirect = desc.addr, desc.len // 16, 0, True
                continue
            count += 1
            assert count <= size and desc.len
            if desc.flags & DescFlags.WRITE:
                writable.append((desc.addr, desc.len))
            else:
                assert not writable, "readable descriptors come first"
                readable.append((desc.addr, desc.len))
            if not desc.flags & DescFlags.NEXT:
                break
            if self.has(Feature.IN_ORDER):
                assert desc.next == (index + 1) % size
            index = desc.next
        self.chains_seen["indirect" if indirect else "direct"] += 1
        self.chains_seen["longest"] = max(self.chains_seen["longest"], count)
        return Chain(head, readable, writable, indirect)

    def gather(self, chain):
        return b"".join(self.load(addr, size) for addr, size in chain.readable)

    def scatter(self, chain, data):
        """Writes ``data`` to the writable part; returns the bytes that fitted."""
        done = 0
        for addr, size in chain.writable:
            piece = data[done : done + size]
            self.store(addr, piece)
            done += len(piece)
        return done

    def _suppress(self, queue):
        if not queue.values.get("queue_enable"):
            return
        size = queue.values["queue_size"]
        used = queue.values["queue_device"]
        self.store(used, int(self.no_notify).to_bytes(2, "little"))
        event = (queue.seen - int(self.no_notify)) & 0xFFFF
        self.store(used + abi.avail_event_offset(size), event.to_bytes(2, "little"))

    def give_back(self, index, head, written, count=1):
        """Puts an element into the used ring; ``count`` buffers at once with IN_ORDER."""
        queue = self.queues[index]
        size = queue.values["queue_size"]
        used = queue.values["queue_device"]
        element = abi.USED_ELEMENT.pack(id=head, len=written)
        self.store(used + 4 + 8 * (queue.used % size), element)
        old, queue.used = queue.used, (queue.used + count) & 0xFFFF
        self.store(used + 2, queue.used.to_bytes(2, "little"))
        avail = queue.values["queue_driver"]
        if self.has(Feature.EVENT_IDX):
            event = self._load16(avail + abi.used_event_offset(size))
            return (queue.used - event - 1) & 0xFFFF < (queue.used - old) & 0xFFFF
        return not self._load16(avail) & 1

    def interrupt(self, vector):
        """Sends the message of a vector, if it is there and not masked."""
        if not self.msix_control & MsixControl.ENABLE:
            self.isr |= 1
            return
        if vector == abi.NO_VECTOR or self.msix_control & MsixControl.FUNCTION_MASK:
            return
        entry = abi.MSIX_ENTRY.unpack(self.table[vector * 16 : vector * 16 + 16].tobytes())
        if not entry.vector_control & 1:
            self.platform.handlers[Message(entry.message_address, entry.message_data)]()

    def fail(self):
        """Says DEVICE_NEEDS_RESET."""
        self.status |= Status.DEVICE_NEEDS_RESET
        self.interrupt(self.common["config_msix_vector"])
