"""Send and receive queues: a virtqueue and the memory of the requests in it."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np

from sim.guest.driver.device import VirtQueue
from sim.guest.driver.errors import DeviceError, DriverTimeout, RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.virtqueue import Segment
from sim.guest.verbs.context import Context
from sim.guest.verbs.cq import ring_size
from sim.guest.verbs.wr import RecvWR, SendWR

R = TypeVar("R", SendWR, RecvWR)

#: A request's ring element may become visible a little after its completion; a post to a full
#: queue gives it this long, in ns.
_GRACE_NS = 5_000


class WorkQueue:
    """A send or receive queue: a virtqueue and the memory of its elements.

    ``room``: the largest ``limit`` that ``resize`` can give it; the ring has so many entries.
    ``pushes``: a send queue, whose requests may go with their doorbells.
    """

    def __init__(
        self,
        ctx: Context,
        name: str,
        limit: int,
        element_size: int,
        room: int = 0,
        *,
        pushes: bool = False,
    ):
        self._pushes = pushes
        self.ctx, self.name, self.limit, self._room = ctx, name, limit, max(limit, room)
        self.ring: VirtQueue
        align = ctx.wqe_align
        self._stride = -(-element_size // align) * align
        self._memory = 0
        self._free: deque[int] = deque()
        self._sizes: dict[int, int] = {}
        #: Head and element of the request that was posted to an empty queue, if it alone was.
        self._alone: tuple[int, bytes] | None = None

    async def set_up(self, index: int, *, any_order: bool = False) -> None:
        """Enables the virtqueue; ``any_order``: its requests may end in any order."""
        policy = self.ctx.device.options.policy
        chain = 1 if policy.indirect else len(policy.split) + 1
        self.ring = await self.ctx.device.setup_queue(
            index, size=ring_size(self._room, chain), policy=policy, any_order=any_order
        )
        self.ring.disable_interrupts()
        if not self._memory:
            self._memory = self.ctx.memory.alloc(max(self._room * self._stride, 1), 64)
        self._free = deque(self._memory + i * self._stride for i in range(self.limit))

    def check_resize(self, limit: int) -> None:
        """Whether ``resize`` can be done; RdmaError(EINVAL) when more requests are outstanding, or
        the virtqueue has no room for so many."""
        self._reap()
        if not self.outstanding <= limit <= self._room:
            raise RdmaError(
                errno.EINVAL,
                f"{self.name}: {limit} requests, {self.outstanding} outstanding, of {self._room}",
            )

    def resize(self, limit: int) -> None:
        """Takes up to ``limit`` requests from now on; the device has agreed."""
        used = {addr for addr in self.ring.pending if isinstance(addr, int)}
        places = (self._memory + i * self._stride for i in range(self._room))
        free = [addr for addr in places if addr not in used]
        self.limit, self._free = limit, deque(free[: limit - len(used)])

    async def tear_down(self) -> None:
        """Ends the use of the virtqueue; its requests are forgotten."""
        await self.ctx.device.release_queue(self.ring.index)

    def free(self) -> None:
        """Frees the memory of the elements."""
        if self._memory:
            self.ctx.memory.free(self._memory)
            self._memory = 0

    @property
    def places(self) -> range:
        """Addresses of all that the queue's elements may take."""
        return range(self._memory, self._memory + self._room * self._stride)

    @property
    def outstanding(self) -> int:
        """Requests whose ring elements the device has not given back."""
        return self.ring.outstanding if hasattr(self, "ring") else 0

    @property
    def pending(self) -> list[bytes]:
        """The elements whose ring elements the device has not given back, oldest first."""
        self._reap()
        addrs = [addr for addr in self.ring.pending if isinstance(addr, int)]
        return [view(self.ctx.memory, addr, self._sizes[addr]).tobytes() for addr in addrs]

    def _reap(self) -> bool:
        for used in self.ring.reap():
            assert isinstance(used.token, int)
            if used.size:
                raise DeviceError(f"{self.name}: {used.size} bytes written to a readable element")
            self._free.append(used.token)
        return bool(self._free)

    def _check(self, element: bytes) -> None:
        if len(element) > self._stride:
            raise RdmaError(
                errno.EINVAL, f"{self.name}: an element of {len(element)} bytes of {self._stride}"
            )

    async def _make_room(self, count: int) -> None:
        """Waits a little for room for ``count`` elements; RdmaError(ENOMEM) when there is none."""

        def enough() -> bool:
            self._reap()
            return len(self._free) >= count

        if enough():
            return
        with suppress(DriverTimeout):
            if self.limit >= count:
                await self.ctx.device.wait_until(enough, self.name, _GRACE_NS)
        if not enough():
            raise RdmaError(
                errno.ENOMEM, f"{self.name}: full, {self.outstanding} requests are outstanding"
            )

    async def post(self, element: bytes) -> None:
        """Puts one element into the ring; RdmaError(ENOMEM) when the queue is full."""
        self._check(element)
        await self._make_room(1)
        addr = self._free.popleft()
        view(self.ctx.memory, addr, len(element))[:] = np.frombuffer(element, np.uint8)
        self._sizes[addr] = len(element)
        was_empty = not self.ring.outstanding
        try:
            head = self.ring.add([Segment(addr, len(element))], addr)
        except RdmaError:
            self._free.append(addr)
            raise
        self._alone = (head, element) if was_empty else None

    async def kick(self) -> None:
        """Publishes what was posted, and rings the doorbell if the device wants it: with the
        request itself, where the device takes it so."""
        alone, self._alone = self._alone, None
        if alone is None or not self._pushes or not self.ctx.device.can_push(alone[1]):
            await self.ring.kick()
            return
        self.ring.publish()
        if self.ring.kick_due():
            await self.ctx.device.push(self.ring, *alone)

    async def post_batch(self, requests: Sequence[R], element_of: Callable[[R], bytes]) -> None:
        """Posts all requests, with one doorbell, or none: RdmaError."""
        elements = [element_of(request) for request in requests]
        for element in elements:
            self._check(element)
        await self._make_room(len(elements))
        for element in elements:
            await self.post(element)
        await self.kick()

    async def post_all(self, requests: R | Sequence[R], element_of: Callable[[R], bytes]) -> None:
        """Posts requests, with one doorbell for all.

        A bad one ends the list: RdmaError with ``bad_wr``, those before it are posted.
        """
        for request in requests if isinstance(requests, Sequence) else [requests]:
            try:
                await self.post(element_of(request))
            except RdmaError as error:
                await self.kick()
                error.bad_wr = request
                raise
        await self.kick()
