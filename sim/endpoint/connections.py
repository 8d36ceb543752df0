"""Connections by MADs: the requests ``cm_...`` on the driver's connection manager."""

from __future__ import annotations

import errno
import time
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from sim.endpoint.fields import BadRequest
from sim.guest.cm.agent import Agent, ConnId, Listener
from sim.guest.cm.params import ConnParam
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import QP, Context

__all__ = ["Connections"]

Fields = SimpleNamespace
Reply = dict[str, Any]
Result = TypeVar("Result")

#: How often a request that waits looks at the wall clock, simulated ns.
_LOOK_NS = 1_000


class Background(Protocol):
    """A coroutine that goes on beside the requests, and raises nothing."""

    def cancel(self) -> Any:
        """End it."""


class World(Protocol):
    """What connections need besides the device."""

    async def wait(self, until: float) -> None:
        """As ``sim.endpoint.world.World`` has it."""

    def beside(self, work: Coroutine[Any, Any, Any]) -> Background:
        """Let something go on beside the requests."""


class Connections:
    """The connection manager of an endpoint, taken into use by the first request that needs it.

    Requests wait by the wall clock, the manager's own timers run in simulated time. queue_pair:
    the one of a number.
    """

    def __init__(self, context: Context, world: World, queue_pair: Callable[[int], QP]):
        self._context, self._world, self._queue_pair = context, world, queue_pair
        self._agent: Agent | None = None
        self._neighbours: dict[bytes, bytes] = {}
        self._listeners: dict[int, Listener] = {}
        self._conns: dict[int, ConnId] = {}
        self._numbers = count()

    @property
    def wait_for_peers(self) -> bool:
        """Whether a message waits for a peer's answer, and is sent again without one."""
        return self._agent is not None and self._agent.manager.waits

    async def _open(self) -> Agent:
        if self._agent is None:
            self._agent = await Agent.open(self._context, self._neighbours.get)
            self._world.beside(self._agent.run())
        return self._agent

    async def _within(self, work: Coroutine[Any, Any, Result], f: Fields, what: str) -> Result:
        """The result of ``work``, which may take ``timeout_ms`` of the wall clock."""
        until = time.monotonic() + f.timeout_ms / 1000
        ended: list[Result | RdmaError] = []

        async def carry() -> None:
            try:
                ended.append(await work)
            except RdmaError as error:
                ended.append(error)

        task = self._world.beside(carry())
        while not ended:
            if time.monotonic() >= until:
                task.cancel()
                raise RdmaError(errno.ETIMEDOUT, f"{what}: nothing has come in time")
            if self.wait_for_peers:
                await self._world.wait(until)
            else:
                await self._context.device.platform.wait_event(_LOOK_NS)
        if isinstance(ended[0], RdmaError):
            raise ended[0]
        return ended[0]

    def _conn(self, number: int) -> ConnId:
        if number not in self._conns:
            raise BadRequest(f"There is no conn {number}")
        return self._conns[number]

    def _added(self, one: ConnId) -> int:
        number = next(self._numbers)
        self._conns[number] = one
        return number

    async def neighbour(self, f: Fields) -> Reply:
        """Whose MAC address a GID has."""
        self._neighbours[f.gid] = f.mac
        return {}

    async def listen(self, f: Fields) -> Reply:
        """Take connections to a port from now on."""
        agent = await self._open()
        if f.port in self._listeners:
            raise BadRequest(f"Port {f.port} is taken")
        self._listeners[f.port] = agent.listen(f.port)
        return {}

    async def request(self, f: Fields) -> Reply:
        """The next connection to a port."""
        if f.port not in self._listeners:
            raise BadRequest(f"Nobody listens at port {f.port}")
        listener, until = self._listeners[f.port], time.monotonic() + f.timeout_ms / 1000
        while (one := listener.take()) is None:
            if time.monotonic() >= until:
                raise RdmaError(errno.ETIMEDOUT, f"Port {f.port}: nobody has come in time")
            await self._world.wait(until)
        return {"conn": self._added(one), "private_data": one.private_data.hex()}

    async def accept(self, f: Fields) -> Reply:
        """Accept one that was asked for; replies when it is established."""
        one = self._conn(f.conn)
        work = one.accept(self._queue_pair(f.qp), _param(f))
        await self._within(work, f, "RTU")
        return {}

    async def connect(self, f: Fields) -> Reply:
        """Ask a peer for a connection; replies when it is established."""
        qp, agent = self._queue_pair(f.qp), await self._open()
        work = agent.connect(qp, f.dest_gid, f.port, _param(f), sgid_index=f.sgid_index)
        one = await self._within(work, f, "REP")
        return {"conn": self._added(one), "private_data": one.private_data.hex()}

    async def disconnect(self, f: Fields) -> Reply:
        """End a connection, whichever side has begun to."""
        await self._within(self._conn(f.conn).disconnect(), f, "DREP")
        del self._conns[f.conn]
        return {}

    async def serve(self, f: Fields) -> Reply:
        """Name a UD queue pair to whoever asks for the port."""
        qp = self._queue_pair(f.qp)
        (await self._open()).serve(f.port, qp)
        return {}

    async def resolve(self, f: Fields) -> Reply:
        """Where datagrams for a port of a peer go."""
        pd, agent = self._queue_pair(f.qp).pd, await self._open()
        work = agent.resolve(pd, f.dest_gid, f.port, f.private_data, sgid_index=f.sgid_index)
        found = await self._within(work, f, "SIDR_REP")
        return {"qpn": found.qpn, "qkey": found.qkey, "private_data": found.private_data.hex()}

    def handler(self, op: str) -> Callable[[Fields], Awaitable[Reply]]:
        """What serves the request ``cm_<op>``."""
        served: Callable[[Fields], Awaitable[Reply]] = getattr(self, op)
        return served


def _param(f: Fields) -> ConnParam:
    return ConnParam(
        private_data=f.private_data,
        responder_resources=f.responder_resources,
        initiator_depth=f.initiator_depth,
        ack_timeout=f.timeout,
    )
