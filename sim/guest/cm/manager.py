"""Connections by MADs: state machine of both sides, without queue pairs and without a clock.

Whoever owns QP1 gives ``Manager.receive`` what arrives, takes what ``send`` is called with, and
calls ``Manager.tick`` now and then.

Spec: IBTA vol 1, 12.9 (states), 12.6 (messages).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from hdl.abi import mad
from hdl.abi.mad import Message, Reason
from sim.guest.cm.sidr import Resolver
from sim.guest.cm.timing import Peer, Timing

#: Connections that peers may have opened, unless a manager is told otherwise.
MOST_INCOMING = 1024


class State(Enum):
    """Where a connection is."""

    #: The REQ is out. A REP, a REJ or the last time-out ends it.
    REQ_SENT = auto()
    #: The listener has been told of a REQ. ``accept`` or ``reject`` ends it.
    REQ_RECEIVED = auto()
    #: The REP is out. An RTU, a REJ, a DREQ or the last time-out ends it.
    REP_SENT = auto()
    #: The REP has come. ``establish``, ``reject`` or a REJ ends it.
    REP_RECEIVED = auto()
    #: Both sides may send. ``disconnect`` or a DREQ ends it.
    ESTABLISHED = auto()
    #: The DREQ is out. A DREP, a DREQ or the last time-out ends it.
    DREQ_SENT = auto()
    #: Over; late messages are still answered. Time ends it (``Timing.linger_ns``).
    CLOSED = auto()


class Event(Enum):
    """What a connection tells its user."""

    REPLIED = auto()
    ESTABLISHED = auto()
    REJECTED = auto()
    DISCONNECTED = auto()
    TIMED_OUT = auto()


#: What a REJ and an MRA call the message that they are about (IBTA 12.6.6, 12.6.7).
_NUMBERS = {State.REQ_RECEIVED: 0, State.REQ_SENT: 0, State.REP_RECEIVED: 1, State.REP_SENT: 1}


@dataclass
class Connection:
    """One connection as ``manager`` knows it; ``events`` holds what the user has not taken yet.

    Each call raises ValueError in a state that does not allow it.
    """

    manager: Manager
    peer: Peer
    local_id: int
    transaction_id: int
    state: State
    timing: Timing
    remote_id: int = 0
    local_qpn: int = 0
    remote_qpn: int = 0
    #: The peer's card, as ``_card`` names it; 0: not known yet.
    remote_card: int | bytes = 0
    #: What the layer above has for it.
    owner: Any = None
    #: The peer has forgotten it: its user has been told, and a DREQ ends it.
    stale: bool = False
    request: Message | None = None
    events: deque[tuple[Event, Message | None]] = field(default_factory=deque)
    _waiting: bytes | None = None
    _answer: bytes | None = None
    _tries: int = 0
    _deadline: int = 0

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.state is State.CLOSED

    @property
    def waits(self) -> bool:
        """Whether its last message waits for an answer."""
        return self._waiting is not None

    def _need(self, *states: State) -> None:
        if self.state not in states:
            raise ValueError(f"Not in state {self.state.name}")

    def _message(self, kind: str, private: bytes = b"", **fields: int) -> bytes:
        fields = {"local_comm_id": self.local_id, "remote_comm_id": self.remote_id, **fields}
        header = mad.MESSAGES[mad.ATTRIBUTES[kind]]
        return Message(header, self.transaction_id, fields, private).pack()

    def _ask(self, data: bytes, state: State) -> None:
        """Send ``data`` and wait for its answer in ``state``."""
        self.state, self._waiting, self._tries = state, data, self.timing.retries
        self._deadline = self.manager.now() + self.timing.timeout_ns
        self.manager.send(data, self.peer)

    def _say(self, data: bytes, state: State) -> None:
        """Send ``data``, which ends an exchange; a duplicate of its question gets it again."""
        self._answer = data
        self._settle(state)
        self.manager.send(data, self.peer)

    def _settle(self, state: State) -> None:
        self.state, self._waiting = state, None
        self._deadline = self.manager.now() + self.timing.linger_ns

    def accept(self, qpn: int, private: bytes = b"", **fields: int) -> None:
        """Answer the REQ with a REP of queue pair ``qpn``; ``fields`` are those of
        ``mad.REP``."""
        self._need(State.REQ_RECEIVED)
        fields = {"local_qpn": qpn, "local_ca_guid": self.manager.guid, **fields}
        data = self._message("REP", private, **fields)
        self.local_qpn = qpn
        self._ask(data, State.REP_SENT)

    def delay(self, service_timeout: int, private: bytes = b"") -> None:
        """Ask the peer by an MRA to wait 4.096 us x 2^n longer for the answer to its REQ or REP."""
        self._need(State.REQ_RECEIVED, State.REP_RECEIVED)
        fields = {"message_mraed": _NUMBERS[self.state], "service_timeout": service_timeout}
        self._say(self._message("MRA", private, **fields), self.state)

    def establish(self, private: bytes = b"") -> None:
        """Answer the REP with an RTU, once the queue pair can receive and send."""
        self._need(State.REP_RECEIVED)
        self._say(self._message("RTU", private), State.ESTABLISHED)

    def reject(self, private: bytes = b"", reason: int = Reason.CONSUMER) -> None:
        """Refuse a REQ or a REP."""
        self._need(State.REQ_RECEIVED, State.REP_RECEIVED)
        number = _NUMBERS[self.state]
        data = self._message("REJ", private, message_rejected=number, reason=reason)
        self._say(data, State.CLOSED)

    def disconnect(self, private: bytes = b"") -> None:
        """Send a DREQ."""
        self._need(State.ESTABLISHED)
        self._part(private)

    def abandon(self) -> None:
        """Nobody waits for the answer to the REQ any more: end as after the last time-out."""
        if self.state in (State.REQ_SENT, State.REP_RECEIVED):
            self._give_up()

    def _lose(self) -> None:
        """The peer's queue pair asks or answers anew: end a connection that it has forgotten."""
        if self.state in (State.REP_SENT, State.REP_RECEIVED, State.ESTABLISHED):
            self.stale = True
            self.manager.stale.append(self)
            self.events.append((Event.DISCONNECTED, None))
            self._part(b"")

    def _part(self, private: bytes) -> None:
        self.transaction_id = self.manager.new_transaction()
        data = self._message("DREQ", private, remote_qpn=self.remote_qpn)
        self._ask(data, State.DREQ_SENT)

    def _over(self, event: Event, message: Message | None) -> None:
        """Tell the user, who has been told already if the connection is stale."""
        if not self.stale:
            self.events.append((event, message))

    def _repeat(self) -> None:
        """Answer a duplicate with what was said, or with what still waits."""
        self.manager.counters["duplicate"] += 1
        if data := self._waiting or self._answer:
            self.manager.send(data, self.peer)

    def _on_rep(self, message: Message) -> None:
        if self.state is State.REQ_SENT:
            self.remote_id, self.remote_qpn = message["local_comm_id"], message.qpn
            self._settle(State.REP_RECEIVED)
            if lost := self.manager._connected(message, self.peer):
                self.reject(reason=Reason.STALE_CONNECTION)
                assert self._answer is not None
                self.events.append((Event.REJECTED, mad.unpack(self._answer)))
                self.manager._lose(lost)
                return
            self.remote_card = _card(message, self.peer)
            self.events.append((Event.REPLIED, message))
        elif message["local_comm_id"] == self.remote_id:
            self._repeat()
        else:
            self.manager.counters["unexpected"] += 1

    def _on_rtu(self, message: Message) -> None:
        if self.state is State.REP_SENT:
            self._settle(State.ESTABLISHED)
            self.events.append((Event.ESTABLISHED, message))
        else:
            self.manager.counters["duplicate"] += 1

    def _on_rej(self, message: Message) -> None:
        if self.state in _NUMBERS and self.state is not State.REQ_RECEIVED:
            self._settle(State.CLOSED)
            self.events.append((Event.REJECTED, message))
        else:
            self.manager.counters["unexpected"] += 1

    def _on_mra(self, message: Message) -> None:
        if self._waiting and _NUMBERS.get(self.state, 2) == message["message_mraed"]:
            wait = (4_096 << message["service_timeout"]) + self.timing.timeout_ns
            self._deadline = self.manager.now() + wait
        else:
            self.manager.counters["unexpected"] += 1

    def _on_dreq(self, message: Message) -> None:
        if message["remote_qpn"] != self.local_qpn:
            self.manager.counters["unexpected"] += 1
        elif self.state in (State.REP_SENT, State.ESTABLISHED, State.DREQ_SENT):
            self.transaction_id = message.transaction_id
            self._say(self._message("DREP"), State.CLOSED)
            self._over(Event.DISCONNECTED, message)
        else:
            self._repeat()

    def _on_drep(self, message: Message) -> None:
        if self.state is State.DREQ_SENT:
            self._settle(State.CLOSED)
            self._over(Event.DISCONNECTED, message)
        else:
            self.manager.counters["duplicate"] += 1

    def _tick(self, now: int) -> bool:
        """Send again or give up what has waited too long; whether to forget the connection."""
        if now < self._deadline:
            return False
        if self._waiting is None:
            return self.state is State.CLOSED
        if self._tries:
            self._tries -= 1
            self._deadline = now + self.timing.timeout_ns
            self.manager.send(self._waiting, self.peer)
            return False
        self._give_up()
        self._over(Event.TIMED_OUT, None)
        return False

    def _give_up(self) -> None:
        if self.state in _NUMBERS:
            number, reason = _NUMBERS[self.state], Reason.TIMEOUT
            data = self._message("REJ", message_rejected=number, reason=reason)
            self._say(data, State.CLOSED)
        self._settle(State.CLOSED)


class Manager:
    """All connections of one port. ``send(mad, peer)`` must not raise; ``now()`` is in ns.

    Communication ids begin above ``first``. A driver draws it: a peer takes the ids of its last run
    for duplicates. ``limit``: connections that peers have opened, all of them together. Of these,
    one that is over makes room for a new one; when there is none, the REQ is refused and nothing
    is kept of it.

    ``guid``: of this card, which REQ and REP name with the queue pair. ``stale``: connections whose
    peer has forgotten them, for whoever owns their queue pairs to take.

    ``counters``: ``malformed``, ``duplicate``, ``unexpected`` (no such connection or state),
    ``refused`` (at the limit), ``stale`` (REQs and REPs of queue pairs that are connected).
    """

    def __init__(
        self,
        send: Callable[[bytes, Peer], None],
        now: Callable[[], int],
        first: int = 1,
        timing: Timing | None = None,
        limit: int = MOST_INCOMING,
        guid: int = 0,
    ):
        self.send, self.now, self.timing, self.limit = send, now, timing or Timing(), limit
        self.guid = guid
        self.stale: deque[Connection] = deque()
        self.counters: Counter[str] = Counter()
        #: The part that finds datagram services.
        self.resolver = Resolver(send, now, self.counters, self.timing)
        self._listeners: dict[int, Callable[[Connection], None]] = {}
        self._connections: dict[int, Connection] = {}
        self._next = first

    def new_transaction(self) -> int:
        """A number that no other exchange of this side has; also used as communication id."""
        self._next += 1
        return self._next

    def listen(self, service_id: int, listener: Callable[[Connection], None]) -> None:
        """Call ``listener`` for each REQ; ValueError when the service is taken."""
        if service_id in self._listeners:
            raise ValueError(f"Service {service_id:#x} is taken")
        self._listeners[service_id] = listener

    def unlisten(self, service_id: int) -> None:
        """Refuse each REQ from now on."""
        del self._listeners[service_id]

    def connect(
        self, peer: Peer, service_id: int, qpn: int, private: bytes = b"", **fields: int
    ) -> Connection:
        """Send a REQ; ``fields`` are those of ``mad.REQ``."""
        number = self.new_transaction()
        values = {"local_comm_id": number, "service_id": service_id, "local_qpn": qpn, **fields}
        values["local_ca_guid"] = self.guid
        for end in ("local", "remote"):
            values[f"{end}_cm_response_timeout"] = self.timing.response_timeout
        values["max_cm_retries"] = self.timing.retries
        data = Message(mad.REQ, number, values, private).pack()
        one = Connection(self, peer, number, number, State.REQ_SENT, self.timing, local_qpn=qpn)
        self._connections[number] = one
        one._ask(data, State.REQ_SENT)
        return one

    def receive(self, data: bytes, peer: Peer) -> None:
        """Take a MAD that ``peer`` sent; never raises for what is in it."""
        try:
            message = mad.unpack(data)
        except ValueError:
            self.counters["malformed"] += 1
            return
        if message.kind in (mad.SIDR_REQ, mad.SIDR_REP):
            self.resolver.receive(message, peer)
            return
        if message.kind is mad.REQ:
            self._on_req(message, peer)
            return
        one = self._connections.get(message.fields.get("remote_comm_id", 0))
        if one is not None and one.peer != peer:
            one = None
        handler = _HANDLERS.get(message.kind.name)
        if one and handler and message["local_comm_id"] in (one.remote_id, *_first(one, message)):
            handler(one, message)
            return
        self.counters["unexpected"] += 1
        if message.kind is mad.DREQ and one is None:  # the other side must not wait for nothing
            ids = message["remote_comm_id"], message["local_comm_id"]
            fields = dict(zip(("local_comm_id", "remote_comm_id"), ids, strict=True))
            self.send(Message(mad.DREP, message.transaction_id, fields).pack(), peer)

    def _on_req(self, message: Message, peer: Peer) -> None:
        for one in self._connections.values():
            known = one.request is not None and one.peer == peer
            if known and one.remote_id == message["local_comm_id"]:
                one._repeat()
                return
        if lost := self._connected(message, peer):
            self._refuse(message, peer, Reason.STALE_CONNECTION)
            self._lose(lost)
            return
        listener = self._listeners.get(message["service_id"])
        if listener is None:
            self._refuse(message, peer, Reason.INVALID_SERVICE_ID)
            return
        if not self._make_room():
            self.counters["refused"] += 1
            self._refuse(message, peer, Reason.NO_RESOURCES)
            return
        number = self.new_transaction()
        timing = Timing(message["local_cm_response_timeout"], message["max_cm_retries"])
        transaction = message.transaction_id
        one = Connection(self, peer, number, transaction, State.REQ_RECEIVED, timing)
        one.remote_id, one.remote_qpn = message["local_comm_id"], message.qpn
        one.request, one.remote_card = message, _card(message, peer)
        self._connections[number] = one
        listener(one)

    def _connected(self, message: Message, peer: Peer) -> list[Connection]:
        """The connections of the queue pair that sends this REQ or REP. There should be none: its
        side has forgotten them, so they are stale (IBTA vol 1, 12.9.8.3.1)."""
        sender = _card(message, peer), message.qpn
        return [
            one
            for one in self._connections.values()
            if (one.remote_card, one.remote_qpn) == sender and not one.closed
        ]

    def _lose(self, lost: list[Connection]) -> None:
        """End stale connections, behind the REJ."""
        self.counters["stale"] += 1
        for one in lost:
            one._lose()

    def _refuse(self, request: Message, peer: Peer, reason: Reason) -> None:
        """Answer a REQ of which nothing is kept."""
        fields = {"remote_comm_id": request["local_comm_id"], "reason": reason}
        self.send(Message(mad.REJ, request.transaction_id, fields).pack(), peer)

    def _make_room(self) -> bool:
        """Whether a peer may open one more connection: the oldest that is over is forgotten."""
        incoming = [one for one in self._connections.values() if one.request is not None]
        if len(incoming) < self.limit:
            return True
        over = next((one for one in incoming if one.closed), None)
        if over is not None:
            del self._connections[over.local_id]
        return over is not None

    @property
    def waits(self) -> bool:
        """Whether a message waits for its answer, and is sent again when its time has passed."""
        connections = self._connections.values()
        return self.resolver.waits or any(one.waits for one in connections)

    def tick(self) -> None:
        """Send again what has waited too long, forget what is long over."""
        now = self.now()
        for number, one in list(self._connections.items()):
            if one._tick(now):
                del self._connections[number]
        self.resolver.tick()


def _card(message: Message, peer: Peer) -> int | bytes:
    """Which card a REQ or a REP is from: its GUID; of one without a GUID, its address."""
    return message["local_ca_guid"] or peer.gid


def _first(one: Connection, message: Message) -> tuple[int, ...]:
    """The peer's id, while a REP or a REJ may be the first message that names it."""
    first = one.state is State.REQ_SENT and message.kind in (mad.REP, mad.REJ, mad.MRA)
    return (message["local_comm_id"],) if first else ()


_HANDLERS = {
    "REP": Connection._on_rep,
    "RTU": Connection._on_rtu,
    "REJ": Connection._on_rej,
    "MRA": Connection._on_mra,
    "DREQ": Connection._on_dreq,
    "DREP": Connection._on_drep,
}
