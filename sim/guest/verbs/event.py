"""Asynchronous events: what the device tells of its objects unasked.

Spec: docs/extensions.md, extension EVENTS.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass, replace

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import EventType, RdmaFeature
from sim.guest.driver.device import VirtQueue
from sim.guest.driver.errors import DeviceError, RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.rdma import RdmaDevice
from sim.guest.driver.virtqueue import Segment

__all__ = ["AsyncEvent", "EventQueue"]

#: Events that the device can tell before the driver has taken any.
DEPTH = 16


@dataclass(frozen=True)
class AsyncEvent:
    """One event. ``number``: qpn, cqn or srqn of its object; ``index``: the entry of the P_Key or
    GID table that has changed; ``port_num``: 0 unless it is an event of the port; ``lost``: events
    before it that found no buffer."""

    event: EventType
    number: int = 0
    index: int = 0
    port_num: int = 0
    lost: int = 0


class EventQueue:
    """The event virtqueue with its buffers; ``get`` is ``ibv_get_async_event``."""

    def __init__(self, device: RdmaDevice):
        self._device = device
        self._ring: VirtQueue
        self._buffers = 0
        self._events: deque[AsyncEvent] = deque()

    @classmethod
    async def create(cls, device: RdmaDevice, depth: int = DEPTH) -> EventQueue:
        """Enables the virtqueue with ``depth`` buffers, a power of two.

        Raises RdmaError: EOPNOTSUPP when events were not negotiated.
        """
        if not device.has(RdmaFeature.EVENTS):
            raise RdmaError(errno.EOPNOTSUPP, "Events were not negotiated")
        queue, config, memory = cls(device), device.config, device.platform.memory
        index = abi.event_queue(config.max_cq, config.max_qp)
        queue._ring = await device.setup_queue(
            index,
            size=depth,
            vector=device.control_vector(),
            policy=replace(device.options.policy, split=()),
        )
        queue._buffers = memory.alloc(depth * abi.EVENT.size)
        for i in range(depth):
            queue._add(queue._buffers + i * abi.EVENT.size)
        queue._ring.enable_interrupts()
        await queue._ring.kick()
        return queue

    def _add(self, addr: int) -> None:
        self._ring.add([Segment(addr, abi.EVENT.size, writable=True)], addr)

    async def close(self) -> None:
        """Ends the use of the virtqueue; events from now on are lost."""
        await self._device.release_queue(self._ring.index)
        self._device.platform.memory.free(self._buffers)

    @property
    def due(self) -> bool:
        """Whether the device has told something that ``poll`` has not read."""
        return bool(self._events) or self._ring.has_used()

    async def poll(self) -> AsyncEvent | None:
        """The next event if there is one; never waits."""
        done = self._ring.reap()
        for used in done:
            assert isinstance(used.token, int)
            if used.size != abi.EVENT.size:
                raise DeviceError(f"An event of {used.size} bytes, not {abi.EVENT.size}")
            record = abi.EVENT.unpack(
                view(self._device.platform.memory, used.token, used.size).tobytes()
            )
            self._events.append(
                AsyncEvent(
                    EventType(record.event),
                    record.number,
                    record.index,
                    record.port_num,
                    record.lost,
                )
            )
            self._add(used.token)
        self._ring.enable_interrupts()
        if done:
            await self._ring.kick()
        return self._events.popleft() if self._events else None

    async def get(self, timeout_ns: int | None = None) -> AsyncEvent:
        """The next event, waited for; DriverTimeout."""
        while (event := await self.poll()) is None:
            await self._device.wait_until(self._ring.has_used, "An event", timeout_ns)
        return event
