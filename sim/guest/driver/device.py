"""A virtio device over modern PCI: negotiation, queues, doorbells, interrupts, resets.

Spec: Virtio 1.2, 3.1 (initialisation), 4.1.4.3 and 4.1.5 (PCI), 2.6.1 (queue reset).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_pci import CfgType, Feature, Status
from sim.guest.driver.errors import DeviceError, DriverTimeout, NeedsReset, RdmaError
from sim.guest.driver.packed import PackedQueue
from sim.guest.driver.pci import Msix, PciFunction, Window, find_windows
from sim.guest.driver.platform import Platform
from sim.guest.driver.virtqueue import Ring, RingPolicy, SplitQueue
from sim.guest.driver.waiting import POLL_NS, Lock, wait_until

#: Features of the transport that a driver can use, whatever the device is.
TRANSPORT_FEATURES = (
    Feature.VERSION_1,
    Feature.INDIRECT_DESC,
    Feature.EVENT_IDX,
    Feature.NOTIFICATION_DATA,
    Feature.IN_ORDER,
    Feature.RING_RESET,
    Feature.ACCESS_PLATFORM,
    Feature.ORDER_PLATFORM,
)
#: What this driver can use, and asks for unless told otherwise.
ALL_FEATURES = sum(
    feature.mask
    for feature in (
        *TRANSPORT_FEATURES,
        *(one for one in RdmaFeature if one not in (RdmaFeature.EVENTS, RdmaFeature.QUEUE_ERROR)),
    )
)
_WITH_SRQ = RdmaFeature.XRC.mask | RdmaFeature.DC.mask  # what needs SRQ


@dataclass(frozen=True)
class DriverOptions:
    """How the driver behaves; tests vary it.

    ``features``: wanted, as a mask; VERSION_1 is always wanted. With RING_PACKED, which is wanted
    only if it is named here, rings are packed, and SRQ is given up.
    ``vectors``: MSI-X vectors to use at most; 0 leaves MSI-X off (the driver then polls).
    ``policy``: how rings are used (cuts, indirect tables, order of descriptors). Indirect tables
    are used only when negotiated.
    ``timeout_ns``: for anything the device must answer. ``poll_ns``: longest sleep while waiting.
    """

    features: int = ALL_FEATURES
    vectors: int = 8
    policy: RingPolicy = field(default_factory=RingPolicy)
    timeout_ns: int = 10_000_000
    poll_ns: int = POLL_NS


class VirtQueue(Ring):
    """A virtqueue with its doorbell; ``vector`` is its MSI-X vector or NO_VECTOR."""

    device: VirtioPciDevice
    vector: int
    doorbell: int
    #: Its doorbell has the data of NOTIFICATION_DATA, if that is negotiated.
    with_data = True

    async def kick(self) -> None:
        """Publishes what was added and rings the doorbell if the device wants it."""
        self.publish()
        if self.kick_due():
            await self.device.notify(self)


class SplitVirtQueue(VirtQueue, SplitQueue):
    """A split one."""


class PackedVirtQueue(VirtQueue, PackedQueue):
    """A packed one."""


class VirtioPciDevice:
    """One virtio function.

    ``open`` brings it to FEATURES_OK; queues are then set up and ``start`` sets DRIVER_OK.
    Errors: DeviceError when the device breaks the standard, NeedsReset when it asks for a reset,
    DriverTimeout when it does not answer, RdmaError for the rest.
    """

    def __init__(self, platform: Platform, function: int, options: DriverOptions):
        self.platform, self.function, self.options = platform, function, options
        self.pci = PciFunction(platform.mmio, function)
        self.windows: dict[CfgType, Window] = {}
        self.msix: Msix | None = None
        #: Number of vectors in use and the messages received on each.
        self.vectors = 0
        self.interrupts: list[int] = []
        self.features = 0
        self.queues: dict[int, VirtQueue] = {}
        #: Called with the vector for each message, before anything that waits looks again.
        self.on_interrupt: list[Callable[[int], None]] = []
        self._lock = Lock(platform, options.timeout_ns)
        self._config_changed = False

    # Opening and closing ------------------------------------------------------------------------

    async def open(self, device_id: int) -> None:
        """Finds the device, resets it and negotiates features (Virtio 1.2, 3.1.1, steps 1-6)."""
        vendor = await self.pci.read_header("vendor_id")
        found = await self.pci.read_header("device_id")
        if (vendor, found) != (abi.VENDOR_ID, device_id):
            raise RdmaError(
                errno.ENODEV,
                f"Function {self.function} is {vendor:04x}:{found:04x}, "
                f"not {abi.VENDOR_ID:04x}:{device_id:04x}",
            )
        await self.pci.enable()
        self.windows = await find_windows(self.pci)
        await self.reset()
        await self._set_status(Status.ACKNOWLEDGE)
        await self._set_status(Status.DRIVER)
        await self._negotiate()

    async def start(self) -> None:
        """Sets DRIVER_OK: the device may use its queues."""
        await self._set_status(Status.DRIVER_OK)

    async def close(self) -> None:
        """Resets the device and frees queues and vectors."""
        await self.reset()
        await self.disable_vectors()
        for queue in self.queues.values():
            queue.close()
        self.queues.clear()

    async def reset(self) -> None:
        """Writes status 0 and waits until it reads 0 (Virtio 1.2, 4.1.4.3.2)."""
        await self.common_write("device_status", 0)
        await self._poll("device_status", 0, "Device reset")
        self._config_changed = False

    async def _negotiate(self) -> None:
        offered = await self.read_features("device_feature")
        if not offered & Feature.VERSION_1.mask:
            await self._set_status(Status.FAILED)
            raise DeviceError(f"Device does not offer VERSION_1: features {offered:#x}")
        features = offered & (self.options.features | Feature.VERSION_1.mask)
        if features & Feature.RING_PACKED.mask:
            features &= ~(RdmaFeature.SRQ.mask | RdmaFeature.PUSH.mask | _WITH_SRQ)
        if not features & RdmaFeature.SRQ.mask:
            features &= ~_WITH_SRQ
        for half in (0, 1):
            await self.common_write("driver_feature_select", half)
            await self.common_write("driver_feature", features >> 32 * half & 0xFFFF_FFFF)
        await self._set_status(Status.FEATURES_OK)
        if not await self.status() & Status.FEATURES_OK:
            await self._set_status(Status.FAILED)
            raise DeviceError(f"Device does not take features {features:#x} of {offered:#x}")
        self.features = features

    async def read_features(self, field: str) -> int:
        """The 64 bits of ``device_feature`` or ``driver_feature``."""
        value = 0
        for half in (0, 1):
            await self.common_write(f"{field}_select", half)
            value |= await self.common_read(field) << 32 * half
        return value

    def has(self, feature: Feature | RdmaFeature) -> bool:
        """Whether ``feature`` was negotiated."""
        return bool(self.features & feature.mask)

    # Registers ----------------------------------------------------------------------------------

    async def common_read(self, field: str) -> int:
        """Reads a field of the common configuration."""
        place, window = abi.COMMON_CFG.place(field), self.windows[CfgType.COMMON]
        return await self._read(window, place.offset, place.size)

    async def common_write(self, field: str, value: int) -> None:
        """Writes a field of the common configuration; 64 bits as two halves (4.1.3.1)."""
        place, window = abi.COMMON_CFG.place(field), self.windows[CfgType.COMMON]
        for i in range(0, place.size, 4):
            size = min(4, place.size)
            await self.platform.mmio.write(
                self.function,
                window.bar,
                window.offset + place.offset + i,
                size,
                value >> 8 * i & ((1 << 8 * size) - 1),
            )

    async def config_read(self, offset: int, size: int) -> int:
        """Reads 1, 2 or 4 bytes of the device configuration at any offset (VR-2.7)."""
        return await self._read(self.windows[CfgType.DEVICE], offset, size)

    async def config_write(self, offset: int, size: int, value: int) -> None:
        """Writes the device configuration."""
        window = self.windows[CfgType.DEVICE]
        await self.platform.mmio.write(
            self.function, window.bar, window.offset + offset, size, value
        )

    async def config_bytes(self, size: int) -> bytes:
        """The first ``size`` bytes of the device configuration, all of one generation (2.5.3)."""
        for _ in range(16):
            before = await self.common_read("config_generation")
            words = [await self.config_read(i, 4) for i in range(0, size, 4)]
            if await self.common_read("config_generation") == before:
                return b"".join(word.to_bytes(4, "little") for word in words)[:size]
        raise DeviceError("The device configuration changes all the time")

    async def read_isr(self) -> int:
        """Reads and clears the ISR status."""
        return await self._read(self.windows[CfgType.ISR], 0, 1)

    async def window_read(self, bar: int, offset: int, size: int) -> int:
        """Reads a BAR through the PCI_CFG capability (Virtio 1.2, 4.1.4.9)."""
        async with self._lock:
            data = await self._aim_window(bar, offset, size)
            return await self.pci.read(data, size)

    async def window_write(self, bar: int, offset: int, size: int, value: int) -> None:
        """Writes a BAR through the PCI_CFG capability."""
        async with self._lock:
            data = await self._aim_window(bar, offset, size)
            await self.pci.write(data, size, value)

    async def _aim_window(self, bar: int, offset: int, size: int) -> int:
        cap = self.windows[CfgType.PCI_CFG].cap
        for path, value in (("bar", bar), ("offset", offset), ("length", size)):
            place = abi.VIRTIO_PCI_CFG_CAP.place(path)
            await self.pci.write(cap + place.offset, place.size, value)
        return cap + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data")

    async def _read(self, window: Window, offset: int, size: int) -> int:
        return await self.platform.mmio.read(
            self.function, window.bar, window.offset + offset, size
        )

    async def status(self) -> Status:
        """The device status."""
        return Status(await self.common_read("device_status"))

    async def _set_status(self, bit: Status) -> None:
        await self.common_write("device_status", (await self.status() | bit).value)

    # Waiting ------------------------------------------------------------------------------------

    async def wait_until(
        self, condition: Callable[[], bool], what: str, timeout_ns: int | None = None
    ) -> None:
        """Waits for something in memory; ``timeout_ns`` defaults to the options' one.

        Raises NeedsReset when the device asks for a reset meanwhile or has done so at the end.
        """
        timeout = self.options.timeout_ns if timeout_ns is None else timeout_ns

        def look() -> bool:
            return self._config_changed or condition()

        while True:
            try:
                await wait_until(self.platform, look, timeout, what, self.options.poll_ns)
            except DriverTimeout:
                await self.check(what)
                raise
            if condition():
                return
            self._config_changed = False
            await self.check(what)

    async def check(self, what: str) -> None:
        """Raises NeedsReset when the device has stopped; ``what`` was going on."""
        if await self.status() & Status.DEVICE_NEEDS_RESET:
            raise NeedsReset(f"Device needs a reset ({what})")

    async def _poll(self, field: str, value: int, what: str) -> None:
        deadline = self.platform.now() + self.options.timeout_ns
        while (found := await self.common_read(field)) != value:
            if self.platform.now() >= deadline:
                raise DriverTimeout(
                    f"{what}: {field} still reads {found:#x} after {self.options.timeout_ns} ns"
                )
            await self.platform.wait_event(self.options.poll_ns)

    # Interrupts ---------------------------------------------------------------------------------

    async def enable_vectors(self, wanted: int) -> int:
        """Turns on up to ``wanted`` MSI-X vectors within the options; returns how many.

        Vector 0 reports configuration changes. With one vector everything shares it.
        """
        self.msix = await Msix.find(self.platform, self.pci)
        limit = min(wanted, self.options.vectors)
        if self.msix is None or limit < 1:
            return 0
        self.vectors = min(limit, self.msix.entries)
        self.interrupts = [0] * self.vectors
        handlers = [partial(self._interrupt, vector) for vector in range(self.vectors)]
        await self.msix.enable(handlers)
        await self.common_write("config_msix_vector", 0)
        if await self.common_read("config_msix_vector") != 0:
            raise RdmaError(errno.ENOSPC, "Device has no vector for configuration changes")
        return self.vectors

    async def disable_vectors(self) -> None:
        """Turns MSI-X off."""
        if self.msix is not None and self.vectors:
            await self.msix.disable()
        self.vectors = 0

    def _interrupt(self, vector: int) -> None:
        self.interrupts[vector] += 1
        if vector == 0:
            self._config_changed = True
        for handler in self.on_interrupt:
            handler(vector)

    # Queues -------------------------------------------------------------------------------------

    async def queue_size(self, index: int) -> int:
        """Largest size the device allows for queue ``index``; 0: there is no such queue."""
        async with self._lock:
            await self.common_write("queue_select", index)
            return await self.common_read("queue_size")

    async def setup_queue(
        self,
        index: int,
        *,
        size: int | None = None,
        vector: int = abi.NO_VECTOR,
        policy: RingPolicy | None = None,
        any_order: bool = False,
    ) -> VirtQueue:
        """Allocates and enables queue ``index`` with ``size`` entries, by default the most.

        ``any_order``: the device may use its buffers in any order, whatever was negotiated.
        A queue left behind by ``release_queue`` without RING_RESET is taken up again as it is.
        Raises RdmaError: ENXIO no such queue, EBUSY in use, EINVAL size too large, ENOSPC vector.
        """
        async with self._lock:
            await self.common_write("queue_select", index)
            largest = await self.common_read("queue_size")
            if largest == 0 or index >= await self.common_read("num_queues"):
                raise RdmaError(errno.ENXIO, f"Device has no queue {index}")
            size = size or 1 << (largest.bit_length() - 1)
            if await self.common_read("queue_enable"):
                return self._old_queue(index, size)
            if size > largest:
                raise RdmaError(errno.EINVAL, f"Queue {index} takes {largest} entries, not {size}")
            packed = self.has(Feature.RING_PACKED)
            queue = (PackedVirtQueue if packed else SplitVirtQueue)(
                self.platform.memory,
                index=index,
                size=size,
                policy=self.negotiated(policy or self.options.policy, any_order),
            )
            try:
                await self._program(queue, vector)
            except BaseException:
                queue.close()
                raise
            self.queues[index] = queue
            return queue

    def negotiated(self, policy: RingPolicy, any_order: bool = False) -> RingPolicy:
        """``policy`` within what was negotiated; ``any_order``: as in ``setup_queue``.

        A list in a packed ring that is not indirect is longer than most queues allow."""
        in_order = self.has(Feature.IN_ORDER) and not any_order
        indirect = policy.indirect or self.has(Feature.RING_PACKED)
        return replace(
            policy,
            indirect=indirect and self.has(Feature.INDIRECT_DESC),
            event_idx=self.has(Feature.EVENT_IDX),
            in_order=in_order,
            shuffle=None if in_order else policy.shuffle,
        )

    def _old_queue(self, index: int, size: int) -> VirtQueue:
        queue = self.queues.get(index)
        if queue is None or queue.outstanding:
            raise RdmaError(errno.EBUSY, f"Queue {index} is in use")
        if size > queue.size:
            raise RdmaError(
                errno.EINVAL,
                f"Queue {index} has {queue.size} entries; without RING_RESET not {size}",
            )
        return queue

    async def _program(self, queue: VirtQueue, vector: int) -> None:
        await self.common_write("queue_size", queue.size)
        await self.common_write("queue_msix_vector", vector)
        if vector != abi.NO_VECTOR and await self.common_read("queue_msix_vector") != vector:
            raise RdmaError(errno.ENOSPC, f"Device has no vector {vector} for queue {queue.index}")
        await self.common_write("queue_desc", queue.desc)
        await self.common_write("queue_driver", queue.avail)
        await self.common_write("queue_device", queue.used)
        window = self.windows[CfgType.NOTIFY]
        doorbell = await self.common_read("queue_notify_off") * window.multiplier
        wide = self.has(Feature.NOTIFICATION_DATA) or self.has(RdmaFeature.ARM_CQ)
        if doorbell + (abi.NOTIFICATION.size if wide else 2) > window.length:
            raise DeviceError(
                f"Doorbell of queue {queue.index} at {doorbell:#x} is outside NOTIFY, "
                f"{window.length:#x} bytes"
            )
        await self.common_write("queue_enable", 1)
        queue.device, queue.vector, queue.doorbell = self, vector, doorbell

    async def release_queue(self, index: int) -> None:
        """Ends the use of a queue: resets and frees it, or keeps it without RING_RESET (E-18)."""
        queue = self.queues[index]
        if not self.has(Feature.RING_RESET):
            queue.abandon()
            return
        await self.reset_queue(index)
        del self.queues[index]
        queue.close()

    async def reset_queue(self, index: int) -> None:
        """Resets one queue and waits until the device is done (Virtio 1.2, 4.1.4.3.2)."""
        if not self.has(Feature.RING_RESET):
            raise RdmaError(errno.EOPNOTSUPP, "RING_RESET was not negotiated")
        async with self._lock:
            await self.common_write("queue_select", index)
            await self.common_write("queue_reset", 1)
            await self._poll("queue_reset", 0, f"Reset of queue {index}")
            if await self.common_read("queue_enable"):
                raise DeviceError(f"Queue {index} is still enabled after its reset")

    async def notify(self, queue: VirtQueue) -> None:
        """Rings a queue's doorbell (Virtio 1.2, 4.1.5.2 and 2.9)."""
        if self.has(Feature.NOTIFICATION_DATA) and queue.with_data:
            await self.ring(queue, abi.NOTIFICATION.pack(vqn=queue.index, next=queue.next_avail))
        else:
            await self.ring(queue, queue.index.to_bytes(2, "little"))

    async def ring(self, queue: VirtQueue, data: bytes) -> None:
        """Writes to a queue's doorbell."""
        window = self.windows[CfgType.NOTIFY]
        addr, value = window.offset + queue.doorbell, int.from_bytes(data, "little")
        await self.platform.mmio.write(self.function, window.bar, addr, len(data), value)
