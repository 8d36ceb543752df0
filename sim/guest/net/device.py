"""The network device: frames through its virtqueues, and its control queue.

Spec: Virtio 1.2, 5.1.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdl.abi.layout import Values
from hdl.abi.virtio_net import (
    CONTROL_HEADER,
    NET_CONFIG,
    RSS_HEAD,
    RSS_TAIL,
    ControlAck,
    HashType,
    MacCommand,
    MqCommand,
    NetClass,
    RxCommand,
)
from hdl.abi.virtio_net_header import NET_HEADER, NetHeaderFlags
from hdl.abi.virtio_pci import DEVICE_ID_NET, NO_VECTOR, NetFeature
from sim.guest.driver.control import ControlQueue
from sim.guest.driver.device import (
    TRANSPORT_FEATURES,
    DriverOptions,
    VirtioPciDevice,
    VirtQueue,
)
from sim.guest.driver.errors import CommandError, DeviceError, RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.platform import Platform
from sim.guest.driver.virtqueue import RingPolicy, Segment

__all__ = ["ALL_FEATURES", "NetDevice", "NetOptions"]

#: What this driver can use, and asks for unless told otherwise.
ALL_FEATURES = sum(
    feature.mask
    for feature in (
        *TRANSPORT_FEATURES,
        NetFeature.CSUM,
        NetFeature.GUEST_CSUM,
        NetFeature.MTU,
        NetFeature.MAC,
        NetFeature.MRG_RXBUF,
        NetFeature.STATUS,
        NetFeature.CTRL_VQ,
        NetFeature.CTRL_RX,
        NetFeature.CTRL_RX_EXTRA,
        NetFeature.MQ,
        NetFeature.RSS,
        NetFeature.CTRL_MAC_ADDR,
        NetFeature.SPEED_DUPLEX,
    )
)
#: Bytes of a buffer that holds any frame, with its header.
WHOLE = NET_HEADER.size + 9216 + 18


@dataclass(frozen=True)
class NetOptions:
    """How the driver behaves; tests vary it.

    ``queue_size``: entries of each queue. ``buffers``: receive buffers of each pair, of
    ``buffer_bytes`` each, at addresses ``unaligned`` bytes behind a multiple of 64.
    """

    driver: DriverOptions = field(default_factory=lambda: DriverOptions(features=ALL_FEATURES))
    queue_size: int = 64
    buffers: int = 32
    buffer_bytes: int = 2048
    unaligned: int = 0


@dataclass(eq=False)
class _Buffer:
    """Guest memory that the device has: ``base`` was allocated, ``addr`` is in it."""

    base: int
    addr: int
    size: int


class NetDevice(VirtioPciDevice):
    """A virtio-net function with its queues running.

    ``config``: the unpacked device configuration, as it was in the beginning. ``pairs``: pairs of
    queues that are set up. ``control``: its control queue, None without CTRL_VQ.
    Errors: as ``VirtioPciDevice``; CommandError for a command that the device refuses, DeviceError
    for a receive buffer that cannot be.
    """

    config: Values
    pairs: int
    control: ControlQueue | None

    def __init__(self, platform: Platform, function: int, options: NetOptions):
        super().__init__(platform, function, options.driver)
        self.net = options
        #: Frames that have come, of each pair, oldest first.
        self.frames: list[deque[bytes]] = []
        #: How many of all frames the device has told the checksums of right.
        self.right = 0
        self._parts: list[list[bytes]] = []  # of a frame in several buffers, which is not whole
        self._missing: list[int] = []  # buffers of it that have not come
        self._buffers: list[_Buffer] = []

    @classmethod
    async def start_up(
        cls, platform: Platform, options: NetOptions | None = None, function: int = 0
    ) -> NetDevice:
        """Finds, initialises and starts the device at ``function``."""
        device = cls(platform, function, options or NetOptions())
        await device.open(DEVICE_ID_NET)
        device.config = await device.read_config()
        several = device.has_net(NetFeature.MQ) or device.has_net(NetFeature.RSS)
        device.pairs = device.config.max_virtqueue_pairs if several else 1
        await device.enable_vectors(2 * device.pairs + 2)
        for number in range(2 * device.pairs):
            vector = device.vector(number)
            await device.setup_queue(number, size=device.net.queue_size, vector=vector)
        device.control = None
        if device.has_net(NetFeature.CTRL_VQ):
            number = 2 * device.pairs
            queue = await device.setup_queue(number, size=64, vector=device.vector(number))
            device.control = ControlQueue(device, queue)
        await device.start()
        for pair in range(device.pairs):
            device.frames.append(deque())
            device._parts.append([])
            device._missing.append(0)
            await device._fill(pair)
        if device.pairs > 1 and device.has_net(NetFeature.MQ):
            await device.set_pairs(device.pairs)
        return device

    async def close(self) -> None:
        """Resets the device and frees everything."""
        await super().close()
        for buffer in self._buffers:
            self.platform.memory.free(buffer.base)
        self._buffers.clear()

    def has_net(self, feature: NetFeature) -> bool:
        """Whether a feature of the device type was negotiated."""
        return bool(self.features & feature.mask)

    def vector(self, queue: int) -> int:
        """The vector of a queue: one of its own behind that of changes, if there are as many."""
        return 1 + queue % (self.vectors - 1) if self.vectors > 1 else NO_VECTOR

    def queue(self, pair: int, *, transmit: bool) -> VirtQueue:
        """One of the two queues of a pair."""
        return self.queues[2 * pair + transmit]

    async def read_config(self) -> Values:
        """The device configuration as it is now."""
        return NET_CONFIG.unpack(await self.config_bytes(NET_CONFIG.size))

    # Frames -------------------------------------------------------------------------------------

    def _allocate(self, size: int) -> _Buffer:
        base = self.platform.memory.alloc(size + self.net.unaligned, 64)
        buffer = _Buffer(base, base + self.net.unaligned, size)
        self._buffers.append(buffer)
        return buffer

    async def _fill(self, pair: int) -> None:
        queue, wanted = self.queue(pair, transmit=False), self.net.buffers
        for _ in range(wanted):
            self._offer(queue, self._allocate(self.net.buffer_bytes))
        queue.enable_interrupts()
        await queue.kick()

    @staticmethod
    def _offer(queue: VirtQueue, buffer: _Buffer) -> None:
        queue.add([Segment(buffer.addr, buffer.size, writable=True)], buffer)

    async def send(
        self, frame: bytes, *, pair: int = 0, pieces: Sequence[int] = (), indirect: bool = False
    ) -> None:
        """Gives a frame to the device, behind those before it; waits for room in the ring.

        pieces: bytes at which header and frame are cut into descriptors. ``sent`` waits for it.
        """
        queue = self.queue(pair, transmit=True)
        header = NET_HEADER.pack()
        buffer = self._allocate(len(header) + len(frame))
        view(self.platform.memory, buffer.addr, buffer.size)[:] = np.frombuffer(
            header + frame, np.uint8
        )
        usual = queue.policy
        while True:
            self._reap_sent(pair)
            queue.policy = self.negotiated(RingPolicy(split=tuple(pieces), indirect=indirect))
            try:
                queue.add([Segment(buffer.addr, buffer.size)], buffer)
                break
            except RdmaError as error:
                if error.errno != errno.ENOSPC or not queue.outstanding:
                    raise
            finally:
                queue.policy = usual
            queue.enable_interrupts()
            await self.wait_until(queue.has_used, "room to send")
        await queue.kick()

    def _reap_sent(self, pair: int) -> None:
        queue = self.queue(pair, transmit=True)
        for used in queue.reap():
            assert isinstance(used.token, _Buffer)
            self._buffers.remove(used.token)
            self.platform.memory.free(used.token.base)

    async def sent(self, pair: int = 0) -> None:
        """Waits until the device has returned all frames that were given to it."""
        queue = self.queue(pair, transmit=True)

        def back() -> bool:
            self._reap_sent(pair)
            return not queue.outstanding or not queue.enable_interrupts()

        while queue.outstanding:
            await self.wait_until(back, "frames sent")

    async def receive(self, pair: int = 0, timeout_ns: int | None = None) -> bytes:
        """The next frame of a pair."""

        def come() -> bool:
            self._reap_received(pair)
            return bool(self.frames[pair])

        await self.wait_until(come, "a frame received", timeout_ns)
        await self.queue(pair, transmit=False).kick()  # the buffers that were given back
        return self.frames[pair].popleft()

    def _reap_received(self, pair: int) -> None:
        queue = self.queue(pair, transmit=False)
        while queue.has_used():
            for used in queue.reap():
                buffer = used.token
                assert isinstance(buffer, _Buffer)
                octets = view(self.platform.memory, buffer.addr, buffer.size)[: used.size]
                self._part(pair, octets.tobytes())
                self._offer(queue, buffer)
            queue.enable_interrupts()

    def _part(self, pair: int, octets: bytes) -> None:
        """A buffer has come back: it is a frame, or a part of one."""
        if not self._missing[pair]:
            if len(octets) < NET_HEADER.size:
                raise DeviceError(f"A receive buffer with {len(octets)} bytes")
            header = NET_HEADER.unpack(octets[: NET_HEADER.size])
            allowed = NetHeaderFlags.DATA_VALID if self.has_net(NetFeature.GUEST_CSUM) else 0
            if header.gso_type or not header.num_buffers or header.flags & ~allowed:
                raise DeviceError(f"A frame with the header {dict(header)}")
            self.right += bool(header.flags & NetHeaderFlags.DATA_VALID)
            self._missing[pair] = header.num_buffers
            octets = octets[NET_HEADER.size :]
        self._parts[pair].append(octets)
        self._missing[pair] -= 1
        if not self._missing[pair]:
            self.frames[pair].append(b"".join(self._parts[pair]))
            self._parts[pair] = []

    # Control queue ------------------------------------------------------------------------------

    async def command(self, class_: NetClass, command: int, body: bytes = b"") -> None:
        """A command on the control queue. CommandError when the device refuses it."""
        if self.control is None:
            raise RdmaError(errno.EOPNOTSUPP, "CTRL_VQ was not negotiated")
        name = f"{class_.name}.{command}"
        request = CONTROL_HEADER.pack(class_=class_, command=command) + body
        result = await self.control.request(request, 1, name)
        if result.response != ControlAck.OK:
            raise CommandError(name, result.response)

    async def set_mode(self, mode: RxCommand, on: bool) -> None:
        """Turns a receive mode on or off."""
        await self.command(NetClass.RX, mode, bytes([on]))

    async def set_mac(self, mac: bytes) -> None:
        """Sets the function's own address."""
        await self.command(NetClass.MAC, MacCommand.ADDR_SET, mac)

    async def set_table(self, unicast: Sequence[bytes], multicast: Sequence[bytes]) -> None:
        """Sets the addresses of which frames are wanted, beside the own one."""
        body = b"".join(
            len(those).to_bytes(4, "little") + b"".join(those) for those in (unicast, multicast)
        )
        await self.command(NetClass.MAC, MacCommand.TABLE_SET, body)

    async def set_pairs(self, pairs: int) -> None:
        """Sets how many pairs of queues are used."""
        await self.command(NetClass.MQ, MqCommand.VQ_PAIRS_SET, pairs.to_bytes(2, "little"))

    async def set_spreading(
        self, types: HashType, key: bytes, table: Sequence[int], other: int = 0
    ) -> None:
        """Sets which pair a frame goes to: what a hash with ``key`` is of, the pair of each hash
        modulo the table's length, and the pair of frames without one. All pairs may send."""
        head = RSS_HEAD.pack(
            hash_types=types, indirection_table_mask=len(table) - 1, unclassified_queue=other
        )
        tail = RSS_TAIL.pack(max_tx_vq=self.pairs, hash_key_length=len(key))
        entries = b"".join(pair.to_bytes(2, "little") for pair in table)
        await self.command(NetClass.MQ, MqCommand.RSS_CONFIG, head + entries + tail + key)
