"""Control requests: what a way for them offers, and the usual way, the control queue.

Spec: virtio-rdma, section 3.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sim.guest.driver.device import VirtioPciDevice, VirtQueue
from sim.guest.driver.errors import DeviceError, RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.virtqueue import RingPolicy, Segment


@dataclass(eq=False)
class _Command:
    name: str
    addr: int
    written: int | None = None


@dataclass
class CommandResult:
    """What came back for a control request: ``written`` bytes, the first is the response byte."""

    written: int
    data: bytes = field(repr=False)

    @property
    def response(self) -> int:
        """The response byte; DeviceError when the device wrote none."""
        if not self.data:
            raise DeviceError("A control request came back without a response byte")
        return self.data[0]


class CommandChannel(Protocol):
    """A way for control requests from the driver to who serves them."""

    async def request(
        self, request: bytes, response_size: int, name: str = "request"
    ) -> CommandResult:
        """Any bytes as a control request with ``response_size`` writable bytes.

        Returns when it is answered. Several requests may be under way at once. ``name`` is for
        messages.
        """
        raise NotImplementedError


class ControlQueue:
    """The control queue as the way of control requests; implements ``CommandChannel``."""

    def __init__(self, device: VirtioPciDevice, queue: VirtQueue):
        self._device, self.queue = device, queue

    async def request(
        self,
        request: bytes,
        response_size: int,
        name: str = "request",
        policy: RingPolicy | None = None,
    ) -> CommandResult:
        """See ``CommandChannel``. RdmaError(EINVAL) for an empty request.

        Command and data, response and data are in buffers of their own (VR-3.3) unless ``policy``
        cuts otherwise.
        """
        size = len(request) + response_size
        if not size:
            raise RdmaError(errno.EINVAL, f"{name}: an empty control request")
        queue, memory = self.queue, self._device.platform.memory
        addr = memory.alloc(size)
        view(memory, addr, len(request))[:] = np.frombuffer(request, np.uint8)
        header = 1
        segments = [
            Segment(addr, min(header, len(request))),
            Segment(addr + header, len(request) - header),
            Segment(addr + len(request), min(header, response_size), writable=True),
            Segment(addr + len(request) + header, response_size - header, writable=True),
        ]
        if policy is not None and policy.split:
            segments = [
                Segment(addr, len(request)),
                Segment(addr + len(request), response_size, writable=True),
            ]
        token = _Command(name, addr)
        try:
            await self._add([segment for segment in segments if segment.size > 0], token, policy)
        except BaseException:
            memory.free(addr)
            raise
        queue.enable_interrupts()
        await queue.kick()
        await self._device.wait_until(lambda: self._reap(token), f"{name} answered")
        written = token.written or 0
        data = view(memory, addr + len(request), response_size)[:written].tobytes()
        memory.free(addr)
        return CommandResult(written, data)

    async def _add(
        self, segments: list[Segment], token: _Command, policy: RingPolicy | None
    ) -> None:
        """Adds a request, after others have made room for it if need be."""
        queue = self.queue
        while True:
            usual, queue.policy = queue.policy, self._device.negotiated(policy or queue.policy)
            try:
                queue.add(segments, token)
                return
            except RdmaError as error:
                if error.errno != errno.ENOSPC or not queue.outstanding:
                    raise
            finally:
                queue.policy = usual
            before = queue.free_descriptors

            def room(before: int = before) -> bool:
                return self._reap(token) or queue.free_descriptors > before

            await self._device.wait_until(room, f"{token.name}: room in the control queue")

    def _reap(self, token: _Command) -> bool:
        while self.queue.has_used():
            for used in self.queue.reap():
                assert isinstance(used.token, _Command)
                used.token.written = used.size
            self.queue.enable_interrupts()
        return token.written is not None
