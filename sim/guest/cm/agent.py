"""Connections of queue pairs by QP1, in the manner of librdmacm: what a user of verbs calls.

    agent = await Agent.open(ctx, neighbours.get)
    start_soon(agent.run())                        # carries MADs until ``close``
    listener = agent.listen(7471)
    one = await listener.get_request()
    await one.accept(qp, ConnParam(b"welcome"))

and on the other side

    one = await agent.connect(qp, peer_gid, 7471, ConnParam(b"hello"))
    await one.disconnect()

Queue pairs may be in RESET or, so that receives can be posted before, in INIT.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hdl.abi import mad
from hdl.abi.enums import QpAttrMask, QpState
from hdl.abi.mad import Addresses, Message, Reason, SidrStatus
from sim.guest.cm.gsi import GsiQP
from sim.guest.cm.manager import MOST_INCOMING, Connection, Event, Manager, State
from sim.guest.cm.params import (
    ConnParam,
    Rejected,
    accepts,
    agreed,
    refusal,
    reply_fields,
    request_fields,
    rts_attr,
)
from sim.guest.cm.sidr import Service
from sim.guest.cm.timing import Peer, Timing
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import AH, PD, QP, AHAttr, Context, GlobalRoute, QPAttr, gid_bytes

__all__ = ["Agent", "ConnId", "Destination", "Listener"]

#: Longer than any connection takes to be made or given up: the manager's own timers end a wait.
_FOREVER_NS = 1 << 62
#: How often an agent looks at QP1 and at its timers, ns.
_POLL_NS = 1_000


def _guid(ctx: Context) -> int:
    """What REQ and REP name the device by: its own in a start of the driver and in the next.

    The functions of a card share its MAC address, and with it ``sys_image_guid``, but not their
    QPNs. They have different GIDs, so the first GID makes the difference.
    """
    first = next(iter(ctx.gids().values()), b"")
    name = bytes(ctx.query_device().sys_image_guid) + first
    return int.from_bytes(hashlib.blake2s(name, digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Destination:
    """Where datagrams for a service go: arguments of ``SendWR.set_wr_ud``, and what it said."""

    ah: AH
    qpn: int
    qkey: int
    private_data: bytes


class ConnId:
    """One end of a connection; ``qp`` is its queue pair once there is one."""

    def __init__(self, agent: Agent, connection: Connection):
        self.agent, self.connection = agent, connection
        connection.owner = self
        self.qp: QP | None = None
        #: What the peer sent in its REQ, behind the addresses, or in its REP.
        self.private_data = b""

    @property
    def peer(self) -> Addresses:
        """The ends of a connection that was asked for by the peer, as it names them."""
        assert self.connection.request is not None
        return mad.unpack_addresses(self.connection.request.private)

    async def _next(self, what: str) -> tuple[Event, Message | None]:
        """The next thing that happens; Rejected and RdmaError(ETIMEDOUT) for an end."""
        events = self.connection.events
        await self.agent.wait_until(lambda: bool(events), what)
        event, message = events.popleft()
        if event is Event.REJECTED:
            assert message is not None
            raise Rejected(message)
        if event is Event.TIMED_OUT:
            raise RdmaError(errno.ETIMEDOUT, what)
        return event, message

    async def _ready(self, qp: QP, param: ConnParam, answer: Message, psn: int) -> None:
        """Bring the queue pair to RTS; one that the device refuses refuses the connection."""
        peer = self.connection.peer
        try:
            await qp.to_rts(rts_attr(param, answer, peer, self.agent.mac(peer.gid), psn))
        except RdmaError:
            if not self.connection.closed:
                self.connection.reject()
            raise
        self.qp = qp

    async def connect(self, qp: QP, param: ConnParam, psn: int) -> None:
        """The rest of ``Agent.connect`` behind the REQ."""
        _, answer = await self._next("REP")
        assert answer is not None
        self.private_data = answer.private
        await self._ready(qp, param, answer, psn)
        if self.connection.state is not State.REP_RECEIVED:
            await self._next("RTU")  # a REJ came meanwhile
            await self.give_up()
            raise RdmaError(errno.ECONNRESET, "The peer has forgotten the connection")
        self.connection.establish()

    async def accept(self, qp: QP, param: ConnParam | None = None) -> None:
        """Brings ``qp`` to RTS, sends the REP and waits for the RTU.

        Raises RdmaError: EINVAL when the REQ is for another type of queue pair, or has been
        answered; ECONNREFUSED (Rejected), ETIMEDOUT, ECONNRESET: the peer went.
        """
        request = self.connection.request
        assert request is not None
        if self.connection.state is not State.REQ_RECEIVED:
            raise RdmaError(errno.EINVAL, f"Connection in {self.connection.state.name}")
        if not accepts(qp.qp_type, request):
            raise RdmaError(errno.EINVAL, f"The REQ is not for a {qp.qp_type.name} queue pair")
        param, psn = agreed(param or ConnParam(), request), self.agent.psn()
        await self._ready(qp, param, request, psn)
        fields = reply_fields(qp.qp_type, qp.qp_num, param)
        self.connection.accept(qp.qp_num, param.private_data, starting_psn=psn, **fields)
        event, _ = await self._next("RTU")
        if event is not Event.ESTABLISHED:
            raise RdmaError(errno.ECONNRESET, "The peer went instead of the RTU")

    def reject(self, private_data: bytes = b"") -> None:
        """Answers the REQ with a REJ: the consumer refuses."""
        self.connection.reject(private_data)

    async def disconnected(self) -> bytes:
        """Waits until the peer disconnects; its private data. Of a peer that has forgotten the
        connection, and asks for another one with the same queue pair, there is none."""
        _, message = await self._next("DREQ")
        return b"" if message is None else message.private

    async def give_up(self) -> None:
        """Flushes the queue pair of a connection that is no more."""
        if self.qp is not None:
            await self.qp.modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)

    async def disconnect(self, private_data: bytes = b"") -> None:
        """Flushes the queue pair and tells the peer, unless that has gone already.

        A peer that never answers is taken for gone.
        """
        assert self.qp is not None
        await self.qp.modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
        if self.connection.state is State.ESTABLISHED:
            self.connection.disconnect(private_data)
            await self.agent.wait_until(lambda: self.connection.closed, "DREP")


class Listener:
    """A port that takes REQs, at most ``backlog`` that nobody has asked for yet."""

    def __init__(self, agent: Agent, service_id: int, backlog: int):
        self.agent, self.service_id, self.backlog = agent, service_id, backlog
        self._waiting: deque[ConnId] = deque()
        agent.manager.listen(service_id, self._arrived)

    def _arrived(self, connection: Connection) -> None:
        assert connection.request is not None
        reason = refusal(connection.request)
        if reason is None and len(self._waiting) >= self.backlog:
            reason = Reason.CONSUMER  # as Linux refuses what finds no room
        if reason is not None:
            connection.reject(reason=reason)
            return
        one = ConnId(self.agent, connection)
        one.private_data = connection.request.private[mad.IP_ADDRESSES.size :]
        self._waiting.append(one)

    def take(self) -> ConnId | None:
        """The next REQ that has come already, if any."""
        return self._waiting.popleft() if self._waiting else None

    async def get_request(self, timeout_ns: int | None = None) -> ConnId:
        """The next REQ; DriverTimeout when none comes in time."""
        await self.agent.wait_until(lambda: bool(self._waiting), "REQ", timeout_ns)
        return self._waiting.popleft()

    def close(self) -> None:
        """Refuses the REQs that nobody has asked for, and all from now on."""
        self.agent.manager.unlisten(self.service_id)
        while self._waiting:
            self._waiting.popleft().reject()


class Agent:
    """The connection manager of one port: QP1, the connections, the services.

    Everything that waits needs ``run`` to run beside it.
    """

    def __init__(self, ctx: Context, gsi: GsiQP, timing: Timing, rng: random.Random, limit: int):
        self.ctx, self.gsi, self._rng = ctx, gsi, rng
        self._outbox: deque[tuple[bytes, Peer]] = deque()
        first = rng.getrandbits(30)
        now = ctx.device.platform.now
        self.manager = Manager(self._put, now, first, timing, limit, _guid(ctx))
        self._running = self._closing = False

    @classmethod
    async def open(
        cls,
        ctx: Context,
        neighbour: Callable[[bytes], bytes | None],
        *,
        timing: Timing | None = None,
        seed: int | None = None,
        limit: int = MOST_INCOMING,
    ) -> Agent:
        """Takes QP1 of the port; ``neighbour(gid)`` is the MAC address of a peer, None: unknown.

        ``seed``: of the ids, PSNs and ports that are drawn. ``limit``: connections that peers may
        have opened, all of them together. RdmaError when the device refuses QP1.
        """
        gsi = await GsiQP.create(ctx, neighbour)
        return cls(ctx, gsi, timing or Timing(), random.Random(seed), limit)

    async def run(self) -> None:
        """Carries MADs and keeps the time until ``close``."""
        self._running = True
        while not self._closing:
            for data, peer in await self.gsi.poll():
                self.manager.receive(data, peer)
            self.manager.tick()
            await self._give_up_stale()
            while self._outbox:
                await self.gsi.send(*self._outbox.popleft())
            await self.ctx.device.platform.wait_event(_POLL_NS)
        self._running = False

    async def _give_up_stale(self) -> None:
        """Queue pairs of stale connections send nothing more (IBTA vol 1, 12.9.8.3.1)."""
        while self.manager.stale:
            owner = self.manager.stale.popleft().owner
            if owner is not None:
                with contextlib.suppress(RdmaError):  # its user has destroyed it
                    await owner.give_up()

    async def close(self) -> None:
        """Ends ``run`` and gives QP1 back; connections stay as they are, and are unknown."""
        self._closing = True
        await self.wait_until(lambda: not self._running, "The agent's end")
        await self.gsi.close()

    def _put(self, data: bytes, peer: Peer) -> None:
        self._outbox.append((data, peer))

    async def wait_until(
        self, condition: Callable[[], bool], what: str, timeout_ns: int | None = _FOREVER_NS
    ) -> None:
        """Waits for something that ``run`` brings about."""
        await self.ctx.device.wait_until(condition, what, timeout_ns)

    def mac(self, gid: bytes) -> bytes:
        """MAC address of a peer; RdmaError(EHOSTUNREACH) when it is not known."""
        found = self.gsi.neighbour(gid)
        if found is None:
            raise RdmaError(errno.EHOSTUNREACH, f"No neighbour {gid.hex()}")
        return found

    def psn(self) -> int:
        """A random PSN to begin with."""
        return self._rng.getrandbits(24)

    def _towards(self, gid: str | bytes, sgid_index: int) -> tuple[Peer, bytes]:
        """The peer and what goes in front of private data for it."""
        peer = Peer(gid_bytes(gid), sgid_index)
        self.mac(peer.gid)
        source = self.ctx.query_gid(1, sgid_index)
        port = self._rng.randrange(1 << 15, 1 << 16)
        return peer, mad.pack_addresses(source, peer.gid, port)

    # Connected queue pairs ----------------------------------------------------------------------

    def listen(self, port: int, backlog: int = 16, space: int = mad.SERVICE_TCP) -> Listener:
        """Takes connections to a port of RDMA_PS_TCP or another ``space``; ValueError when it is
        taken."""
        return Listener(self, space + port, backlog)

    async def connect(
        self,
        qp: QP,
        gid: str | bytes,
        port: int,
        param: ConnParam | None = None,
        *,
        sgid_index: int = 0,
        space: int = mad.SERVICE_TCP,
    ) -> ConnId:
        """Connects ``qp`` with whom the listener at ``gid`` accepts with, and brings it to RTS.

        Raises RdmaError: EINVAL, EHOSTUNREACH, ETIMEDOUT, ECONNREFUSED (Rejected).
        """
        param, psn = param or ConnParam(), self.psn()
        peer, addresses = self._towards(gid, sgid_index)
        ends = self.ctx.query_gid(1, sgid_index), peer.gid
        fields = request_fields(qp.qp_type, param, ends) | {"starting_psn": psn}
        private = addresses + param.private_data
        one = ConnId(self, self.manager.connect(peer, space + port, qp.qp_num, private, **fields))
        try:
            await one.connect(qp, param, psn)
        finally:
            one.connection.abandon()  # unless it is established or has ended
        return one

    # Datagrams ----------------------------------------------------------------------------------

    def serve(self, port: int, qp: QP, private_data: bytes = b"") -> None:
        """Names a UD queue pair, whose Q_Key is ``mad.UDP_QKEY``, to whoever asks for the port of
        RDMA_PS_UDP; ValueError when that is taken."""
        self.manager.resolver.serve(
            mad.SERVICE_UDP + port, Service(qp.qp_num, private=private_data)
        )

    def withdraw(self, port: int) -> None:
        """Ends ``serve``."""
        self.manager.resolver.withdraw(mad.SERVICE_UDP + port)

    async def resolve(
        self, pd: PD, gid: str | bytes, port: int, private_data: bytes = b"", *, sgid_index: int = 0
    ) -> Destination:
        """Where datagrams for a port of RDMA_PS_UDP at ``gid`` go.

        Raises RdmaError: EHOSTUNREACH, ETIMEDOUT, ECONNREFUSED: nobody serves it.
        """
        peer, addresses = self._towards(gid, sgid_index)
        number, private = self.manager.new_transaction(), addresses + private_data
        service = mad.SERVICE_UDP + port
        query = self.manager.resolver.ask(peer, number, service, private)
        try:
            await self.wait_until(lambda: query.over, "SIDR_REP")
        finally:
            self.manager.resolver.abandon(number)
        answer = query.answer
        if answer is None:
            raise RdmaError(errno.ETIMEDOUT, f"SIDR_REP for port {port}")
        if answer["status"] != SidrStatus.VALID:
            raise RdmaError(errno.ECONNREFUSED, f"Port {port}: SIDR status {answer['status']}")
        route = GlobalRoute(dgid=peer.gid, sgid_index=sgid_index)
        ah = AH(pd, AHAttr(gr=route, roce_dmac=self.mac(peer.gid)))
        return Destination(ah, answer["qpn"], answer["qkey"], answer.private)
