"""An open device, its ports and the GIDs it has, and protection domains."""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Any, Protocol, Self

from hdl.abi.enums import ControlCommand, GidType, RdmaFeature
from hdl.abi.layout import Values
from hdl.abi.virtio_rdma import AnyCommand
from hdl.ports.counter_names import RDMA_CORE_NAMES
from sim.guest.driver.device import DriverOptions
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.platform import Memory, Octets, Platform
from sim.guest.driver.rdma import RdmaDevice
from sim.guest.verbs.event import AsyncEvent, EventQueue
from sim.guest.verbs.gid import gid_bytes


class Resource:
    """Something with a ``close`` that asks the device; usable with ``async with``."""

    async def close(self) -> None:
        """Destroys the object on the device; afterwards it is of no use."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Notified(Protocol):
    """What a context asks of a completion queue: to hear of interrupts."""

    def interrupted(self, vector: int) -> None:
        """A message of ``vector`` has come."""


class Region(Protocol):
    """What a context's other users ask of a memory region: to be read by its address."""

    iova: int

    def read(self, length: int, offset: int = 0) -> Octets:
        """A copy of ``length`` bytes."""


class Context(Resource):
    """An open virtio-rdma device.

    ``wqe_align``: alignment in bytes of the work requests that the driver writes.
    """

    def __init__(self, device: RdmaDevice, wqe_align: int):
        self.device = device
        self.wqe_align = wqe_align
        self.cqs: dict[int, Notified] = {}
        self.qps: dict[int, Resource] = {}
        #: User memory regions by lkey, for inline data that is given as SGEs.
        self.mrs: dict[int, Region] = {}
        self._gids: dict[tuple[int, int], bytes] = {}
        device.on_interrupt.append(self._interrupt)
        #: Asynchronous events, if they were negotiated.
        self.events: EventQueue | None = None

    @classmethod
    async def open(
        cls,
        platform: Platform,
        function: int = 1,
        options: DriverOptions | None = None,
        *,
        wqe_align: int = 64,
    ) -> Context:
        """Starts the driver on ``function`` of the device."""
        context = cls(await RdmaDevice.start_up(platform, function, options), wqe_align)
        if context.device.has(RdmaFeature.EVENTS):
            context.events = await EventQueue.create(context.device)
        return context

    async def close(self) -> None:
        """Resets the device; every object made with this context is gone."""
        await self.device.close()
        self.cqs.clear()
        self.qps.clear()
        self.mrs.clear()

    @property
    def memory(self) -> Memory:
        """The guest's memory."""
        return self.device.platform.memory

    async def command(self, command: AnyCommand, /, **fields: Any) -> Values:
        """One control command; CommandError when refused."""
        return await self.device.command(command, fields)

    def query_device(self) -> Values:
        """Limits and capabilities: the device configuration."""
        return self.device.config

    async def query_port(self, port_num: int = 1) -> Values:
        """State and properties of a port."""
        return await self.command(ControlCommand.QUERY_PORT, port=port_num)

    async def query_pkey(self, port_num: int = 1, index: int = 0) -> int:
        """An entry of the partition key table."""
        result = await self.command(ControlCommand.QUERY_PKEY, port=port_num, index=index)
        return int(result.pkey)

    async def add_gid(
        self, index: int, gid: str | bytes, port_num: int = 1, gid_type: int = GidType.ROCE_V2
    ) -> None:
        """Sets an entry of the port's address table."""
        raw = gid_bytes(gid)
        await self.command(
            ControlCommand.ADD_GID, gid=raw, gid_type=gid_type, index=index, port_num=port_num
        )
        self._gids[port_num, index] = raw

    async def del_gid(self, index: int, port_num: int = 1) -> None:
        """Removes an entry of the port's address table."""
        await self.command(ControlCommand.DEL_GID, index=index, port=port_num)
        self._gids.pop((port_num, index), None)

    def query_gid(self, port_num: int, index: int) -> bytes:
        """The GID that this context has set; RdmaError(ENODATA) when there is none."""
        try:
            return self._gids[port_num, index]
        except KeyError:
            raise RdmaError(errno.ENODATA, f"Port {port_num} has no GID {index}") from None

    def gids(self, port_num: int = 1) -> dict[int, bytes]:
        """The GIDs that this context has set, by index, in the order of the indices."""
        return {index: gid for (port, index), gid in sorted(self._gids.items()) if port == port_num}

    def gid_index(self, port_num: int, gid: bytes) -> int:
        """The index of a GID that this context has set; RdmaError(ENODATA) when it has not."""
        for (port, index), raw in self._gids.items():
            if (port, raw) == (port_num, gid):
                return index
        raise RdmaError(errno.ENODATA, f"Port {port_num} has no GID {gid.hex()}")

    async def counters(self) -> dict[str, int]:
        """The device's counters by the names of its registers; RdmaError(EOPNOTSUPP) without."""
        return await self.device.counters()

    async def hw_counters(self) -> dict[str, int]:
        """The same by rdma-core's names; a counter that has none there keeps its own."""
        counters = await self.counters()
        for name in ("rx_bytes", "tx_bytes"):
            counters[name] //= 4
        return {RDMA_CORE_NAMES.get(name, name): value for name, value in counters.items()}

    async def get_async_event(self, timeout_ns: int | None = None) -> AsyncEvent:
        """The next asynchronous event, waited for; RdmaError(EOPNOTSUPP) without events."""
        if self.events is None:
            raise RdmaError(errno.EOPNOTSUPP, "Events were not negotiated")
        return await self.events.get(timeout_ns)

    async def alloc_pd(self) -> PD:
        """A protection domain."""
        return await PD.create(self)

    def _interrupt(self, vector: int) -> None:
        for cq in self.cqs.values():
            cq.interrupted(vector)


class PD(Resource):
    """A protection domain."""

    def __init__(self, ctx: Context, pdn: int):
        self.ctx, self.pdn = ctx, pdn

    @classmethod
    async def create(cls, ctx: Context) -> PD:
        """Allocates a protection domain."""
        result = await ctx.command(ControlCommand.CREATE_PD)
        return cls(ctx, result.pdn)

    async def close(self) -> None:
        """Deallocates it; refused while something uses it."""
        await self.ctx.command(ControlCommand.DESTROY_PD, pdn=self.pdn)
