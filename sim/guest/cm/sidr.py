"""Queue pairs of datagram services by SIDR: both sides, without queue pairs and without a clock.

Spec: IBTA vol 1, 12.11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hdl.abi import mad
from hdl.abi.mad import Message, SidrStatus
from sim.guest.cm.timing import Peer, Timing

__all__ = ["Query", "Resolver", "Service"]


@dataclass(frozen=True)
class Service:
    """A datagram service: who sends to ``qpn`` with ``qkey`` reaches it."""

    qpn: int
    qkey: int = mad.UDP_QKEY
    private: bytes = b""


@dataclass
class Query:
    """A question that is out. ``answer`` is the SIDR_REP; ``over``: it came, or never will."""

    peer: Peer
    data: bytes
    tries: int
    deadline: int
    answer: Message | None = None
    over: bool = False


class Resolver:
    """Questions and services of one port; ``send``, ``now`` and ``counters`` are a manager's.

    ``counters``: ``unexpected``: an answer that nothing waits for, or from somebody else.
    """

    def __init__(
        self,
        send: Callable[[bytes, Peer], None],
        now: Callable[[], int],
        counters: Counter[str],
        timing: Timing,
    ):
        self.send, self.now, self.counters, self.timing = send, now, counters, timing
        self._services: dict[int, Service] = {}
        self._queries: dict[int, Query] = {}

    def serve(self, service_id: int, service: Service) -> None:
        """Name ``service`` to whoever asks; ValueError when the service id is taken."""
        if service_id in self._services:
            raise ValueError(f"Service {service_id:#x} is taken")
        self._services[service_id] = service

    def withdraw(self, service_id: int) -> None:
        """Name it no more."""
        del self._services[service_id]

    def ask(self, peer: Peer, number: int, service_id: int, private: bytes = b"") -> Query:
        """Send a SIDR_REQ with ``number``, which no other question has."""
        fields = {"request_id": number, "pkey": 0xFFFF, "service_id": service_id}
        data = Message(mad.SIDR_REQ, number, fields, private).pack()
        query = Query(peer, data, self.timing.retries, self.now() + self.timing.timeout_ns)
        self._queries[number] = query
        self.send(data, peer)
        return query

    def receive(self, message: Message, peer: Peer) -> None:
        """Take a SIDR_REQ or SIDR_REP; never raises for what is in it."""
        if message.kind is mad.SIDR_REQ:
            self._answer(message, peer)
            return
        query = self._queries.get(message["request_id"])
        if query is None or query.peer != peer:
            self.counters["unexpected"] += 1
            return
        del self._queries[message["request_id"]]
        query.answer, query.over = message, True

    def _answer(self, message: Message, peer: Peer) -> None:
        """What a service is does not depend on who asks how often: nothing is remembered."""
        fields = {name: message[name] for name in ("request_id", "service_id")}
        service = self._services.get(message["service_id"])
        if service is None:
            fields["status"] = SidrStatus.UNSUPPORTED_SERVICE
        else:
            fields |= {"status": SidrStatus.VALID, "qpn": service.qpn, "qkey": service.qkey}
        private = service.private if service else b""
        self.send(Message(mad.SIDR_REP, message.transaction_id, fields, private).pack(), peer)

    def abandon(self, number: int) -> None:
        """Nobody waits for the answer to this question any more."""
        self._queries.pop(number, None)

    @property
    def waits(self) -> bool:
        """Whether a question is out."""
        return bool(self._queries)

    def tick(self) -> None:
        """Ask again what has waited too long; give up what was asked often enough."""
        now = self.now()
        for number, query in list(self._queries.items()):
            if now < query.deadline:
                continue
            if not query.tries:
                del self._queries[number]
                query.over = True
                continue
            query.tries -= 1
            query.deadline = now + self.timing.timeout_ns
            self.send(query.data, query.peer)
