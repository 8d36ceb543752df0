"""Completion queues.

Spec: virtio-rdma VR-3.10 to VR-3.12, VR-3.34, VR-3.35, VR-4.8 to VR-4.13.
"""

from __future__ import annotations

import errno

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand, ExtensionCommand, NotifyFlags, RdmaFeature
from hdl.abi.virtio_pci import MAX_QUEUE_SIZE
from sim.guest.driver.device import VirtQueue
from sim.guest.driver.errors import DeviceError, DriverTimeout, RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.virtqueue import Segment
from sim.guest.verbs.context import Context, Resource
from sim.guest.verbs.wr import WC


def ring_size(requests: int, descriptors: int) -> int:
    """Entries of a ring for ``requests`` chains of ``descriptors`` each: a power of two."""
    return 1 << max(requests * descriptors - 1, 1).bit_length()


class CQ(Resource):
    """A completion queue of ``cqe`` entries.

    The driver keeps ``cqe`` buffers in the virtqueue; the device takes one for each completion and
    ``poll`` puts it back.
    """

    def __init__(
        self, ctx: Context, cqn: int, cqe: int, room: int = 0, *, with_mp_wr: bool = False
    ):
        self.with_mp_wr = with_mp_wr
        self.ctx, self.cqn, self.cqe, self._room = ctx, cqn, cqe, max(cqe, room)
        self.queue: VirtQueue
        #: Completion events not yet taken with ``get_event``.
        self.events = 0
        self._armed = False
        #: Memory for ``_room`` buffers, and those that are not in the virtqueue.
        self._buffers = 0
        self._spare: list[int] = []

    @classmethod
    async def create(
        cls,
        ctx: Context,
        cqe: int,
        *,
        comp_vector: int = 0,
        room: int = 0,
        with_mp_wr: bool = False,
    ) -> CQ:
        """Creates the queue and gives it its buffers; ``resize`` can give it up to ``room``.
        ``with_mp_wr``: its completions may say where a packet lies (``WC.mp_wr_offset``).

        Raises RdmaError: EINVAL when the device or its virtqueue refuses ``cqe`` entries, ENOMEM.
        """
        if not 1 <= cqe <= MAX_QUEUE_SIZE:
            raise RdmaError(errno.EINVAL, f"A completion queue of {cqe} entries")
        result = await ctx.command(ControlCommand.CREATE_CQ, cqe=cqe)
        cq = cls(ctx, result.cqn, cqe, room, with_mp_wr=with_mp_wr)
        try:
            await cq._set_up(comp_vector)
        except BaseException:
            await ctx.command(ControlCommand.DESTROY_CQ, cqn=cq.cqn)
            raise
        ctx.cqs[cq.cqn] = cq
        return cq

    async def _set_up(self, comp_vector: int) -> None:
        device = self.ctx.device
        policy = device.options.policy
        if self.cqn >= device.config.max_cq:
            raise DeviceError(f"CREATE_CQ returned cqn {self.cqn} of {device.config.max_cq}")
        chain = 1 if policy.indirect else len(policy.split) + 1
        self.queue = await device.setup_queue(
            abi.cq_queue(self.cqn),
            size=ring_size(self._room, chain),
            vector=device.cq_vector(comp_vector),
            policy=policy,
        )
        # Four bytes arm it.
        self.queue.with_data = not device.has(RdmaFeature.ARM_CQ)
        self._buffers = self.ctx.memory.alloc(self._room * abi.CQE.size)
        self._spare = [self._buffers + i * abi.CQE.size for i in reversed(range(self._room))]
        self._fill()
        await self.queue.kick()

    def _fill(self) -> None:
        """Has ``cqe`` buffers in the virtqueue, if there are not more."""
        while self.queue.outstanding < self.cqe:
            self._add(self._spare.pop())

    async def resize(self, cqe: int) -> None:
        """Gives the queue another depth; completions that nobody has polled stay.

        RdmaError(EINVAL): there are more of these, or no room for so many.
        """
        if not self.queue.ready <= cqe <= self._room:
            raise RdmaError(
                errno.EINVAL,
                f"CQ {self.cqn}: {self.queue.ready} completions and a ring for {self._room} entries"
                f", not {cqe}",
            )
        await self.ctx.command(ExtensionCommand.RESIZE_CQ, cqn=self.cqn, cqe=cqe)
        self.cqe = cqe
        self._fill()
        await self.queue.kick()

    def _add(self, addr: int) -> None:
        self.queue.add([Segment(addr, abi.CQE.size, writable=True)], addr)

    async def close(self) -> None:
        """Destroys the queue; refused while a QP uses it."""
        await self.ctx.command(ControlCommand.DESTROY_CQ, cqn=self.cqn)
        self.ctx.cqs.pop(self.cqn, None)
        await self.ctx.device.release_queue(self.queue.index)
        self.ctx.memory.free(self._buffers)

    async def poll(self, num_entries: int = 1) -> list[WC]:
        """Up to ``num_entries`` completions that are there, in order; never waits for one.

        Raises DeviceError for a completion that cannot be, or that is not 38 bytes long.
        """
        done = self.queue.reap(num_entries)
        completions = []
        for used in done:
            addr = used.token
            assert isinstance(addr, int)
            if used.size != abi.CQE.size:
                raise DeviceError(
                    f"CQ {self.cqn}: a completion of {used.size} bytes, not {abi.CQE.size}"
                )
            completions.append(WC.unpack(view(self.ctx.memory, addr, used.size).tobytes()))
            self._spare.append(addr)
        if observer := self.ctx.device.observer:
            for completion in completions:
                observer.completed(completion)
        self._fill()
        if self._armed:
            self.queue.enable_interrupts()  # used_event follows what was seen
        if done:
            await self.queue.kick()
        return completions

    async def wait(self, num_entries: int = 1, timeout_ns: int | None = None) -> list[WC]:
        """Exactly ``num_entries`` completions; DriverTimeout that names those that did come."""
        device = self.ctx.device
        timeout = device.options.timeout_ns if timeout_ns is None else timeout_ns
        deadline = device.platform.now() + timeout
        found = await self.poll(num_entries)
        while len(found) < num_entries:
            what = f"CQ {self.cqn}: {num_entries} completions"
            try:
                left = max(0, deadline - device.platform.now())
                await device.wait_until(self.queue.has_used, what, left)
            except DriverTimeout:
                raise DriverTimeout(f"{what} not within {timeout} ns, only {found}") from None
            found += await self.poll(num_entries - len(found))
        return found

    async def req_notify(self, solicited_only: bool = False) -> None:
        """Arms the queue: one event for the next completion, or the next solicited one.

        Completions that are there already make no event: poll once more afterwards (VR-3.35).
        With ARM_CQ by its doorbell, else by a command.
        """
        device = self.ctx.device
        if device.has(RdmaFeature.ARM_CQ):
            # An interrupt may come before the write is over.
            self._armed = True
            self.queue.enable_interrupts()
            seen = self.queue.used_index & ((1 << abi.ARM_SEEN_BITS) - 1)
            seen |= solicited_only << abi.ARM_SEEN_BITS
            await device.ring(self.queue, abi.CQ_DOORBELL.pack(queue=self.queue.index, seen=seen))
            return
        self.queue.enable_interrupts()
        self._armed = True
        flags = NotifyFlags.SOLICITED if solicited_only else NotifyFlags.NEXT_COMPLETION
        try:
            await self.ctx.command(ControlCommand.REQ_NOTIFY_CQ, cqn=self.cqn, flags=flags)
        except BaseException:
            self._armed = False
            raise

    def interrupted(self, vector: int) -> None:
        """Notes an event if the message may be about this queue; vectors can be shared."""
        if self._armed and vector == self.queue.vector and self.queue.has_used():
            self._armed = False
            self.events += 1

    async def get_event(self, timeout_ns: int | None = None) -> None:
        """Waits for a completion event and takes it."""
        await self.ctx.device.wait_until(
            lambda: self.events > 0, f"CQ {self.cqn}: completion event", timeout_ns
        )
        self.events -= 1
