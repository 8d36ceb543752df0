"""The connection manager: formats, and both sides over a network that misbehaves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hdl.abi import grh, mad, mad_docs
from hdl.abi.enums import QpType
from hdl.abi.mad import Message, Reason, SidrStatus
from sim.guest.cm import params
from sim.guest.cm.manager import Connection, Event, Manager, State
from sim.guest.cm.sidr import Service
from sim.guest.cm.timing import Peer, Timing
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import gid_bytes
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap

SERVICE = mad.SERVICE_TCP + 7471
A, B = Peer(bytes(15) + b"a"), Peer(bytes(15) + b"b")
STRANGER = Peer(bytes(15) + b"c")
RETRIES, TIMEOUT_NS = Timing().retries, Timing().timeout_ns


class Pair:
    """Two managers and the network between them; ``fate`` gives the copies of each MAD."""

    def __init__(self, fate=lambda data: [data]):
        self.time, self.flying, self.sent = 0, [], []
        self.fate = fate
        self.a = Manager(lambda data, peer: self._send(data, A, peer), lambda: self.time)
        self.b = Manager(lambda data, peer: self._send(data, B, peer), lambda: self.time)
        self.accepted: list[Connection] = []

    def _send(self, data: bytes, source: Peer, peer: Peer) -> None:
        self.sent.append(mad.unpack(data).kind.name)
        self.flying += [(one, source, peer) for one in self.fate(data)]

    def settle(self) -> None:
        while self.flying:
            data, source, peer = self.flying.pop(0)
            (self.a if peer == A else self.b).receive(data, source)

    def later(self, times: int = 1) -> None:
        for _ in range(times):
            self.time += TIMEOUT_NS
            self.a.tick()
            self.b.tick()
            self.settle()

    def serve(self) -> None:
        def listener(one: Connection) -> None:
            self.accepted.append(one)
            one.accept(qpn=8 + len(self.accepted), private=b"yes", starting_psn=0xABCDEF)

        self.b.listen(SERVICE, listener)


def drive(pair: Pair) -> Connection:
    """Connect and disconnect from A, as often as it takes to send again."""
    one = pair.a.connect(B, SERVICE, 5, b"hello")
    pair.settle()
    for _ in range(RETRIES):
        if one.state is State.REP_RECEIVED:
            one.establish()
            pair.settle()
        pair.later()
        if pair.accepted and pair.accepted[0].state is State.ESTABLISHED:
            break
    assert one.state is pair.accepted[0].state is State.ESTABLISHED
    one.disconnect()
    pair.settle()
    for _ in range(RETRIES):
        if one.state is State.CLOSED:
            break
        pair.later()
    return one


# Written down from the specification, not from the table: 12.6.5 to 12.6.11, 12.11.
OFFSETS = [
    (mad.MAD, "attribute_id", 16, 0),
    (mad.REQ, "service_id", 8, 0),
    (mad.REQ, "local_qpn", 32, 0),
    (mad.REQ, "transport_service", 43, 5),
    (mad.REQ, "starting_psn", 44, 0),
    (mad.REQ, "retry_count", 47, 5),
    (mad.REQ, "pkey", 48, 0),
    (mad.REQ, "rnr_retry_count", 50, 5),
    (mad.REQ, "max_cm_retries", 51, 0),
    (mad.REQ, "srq", 51, 4),
    (mad.REQ, "extended_transport", 51, 5),
    (mad.REQ, "primary_local_gid", 56, 0),
    (mad.REQ, "primary_packet_rate", 91, 2),
    (mad.REQ, "primary_ack_timeout", 95, 0),
    (mad.REQ, "alternate_local_lid", 96, 0),
    (mad.REQ, "alternate_ack_timeout", 139, 0),
    (mad.REP, "local_qpn", 12, 0),
    (mad.REP, "local_eecn", 16, 0),
    (mad.REP, "starting_psn", 20, 0),
    (mad.REP, "srq", 27, 3),
    (mad.REP, "local_ca_guid", 28, 0),
    (mad.REJ, "reason", 10, 0),
    (mad.SIDR_REP, "qkey", 20, 0),
]
PRIVATE = {"REQ": 92, "MRA": 222, "REJ": 148, "REP": 196, "RTU": 224}
PRIVATE |= {"DREQ": 220, "DREP": 224, "SIDR_REQ": 216, "SIDR_REP": 136}


@pytest.mark.parametrize(("header", "field", "byte", "bit"), OFFSETS)
def test_offsets(header, field, byte, bit):
    assert (header[field].byte, header[field].bit) == (byte, bit)


def test_private_data_fills_the_mad():
    assert {one.name: mad.private_size(one) for one in mad.MESSAGES.values()} == PRIVATE
    assert mad.IP_ADDRESSES.size == 36
    with pytest.raises(ValueError, match="224 bytes"):
        Message(mad.RTU, 1, {}, bytes(225)).pack()


def test_tables_show_each_message():
    tables = mad_docs.tables()
    for attribute, kind in mad.MESSAGES.items():
        assert f"| {attribute:04X}h | {kind.name} | {PRIVATE[kind.name]} bytes |" in tables
    for header in (mad.MAD, *mad.MESSAGES.values(), mad.IP_ADDRESSES):
        section = tables.partition(f"### {header.name}, {header.size} bytes\n")[2]
        fields = section.partition("\n### ")[0]
        assert all(f"| `{name}` |" in fields for name in header.fields)


def test_connect_and_disconnect():
    pair = Pair()
    pair.serve()
    one = drive(pair)
    other = pair.accepted[0]
    assert pair.sent == ["REQ", "REP", "RTU", "DREQ", "DREP"]
    assert (one.remote_qpn, other.remote_qpn) == (9, 5)
    assert other.request.private.rstrip(b"\0") == b"hello"
    kind, reply = one.events[0]
    assert kind is Event.REPLIED and reply["starting_psn"] == 0xABCDEF
    assert reply.private.rstrip(b"\0") == b"yes"
    assert [kind for kind, _ in other.events] == [Event.ESTABLISHED, Event.DISCONNECTED]


@pytest.mark.parametrize("lost", ["REQ", "REP", "RTU", "DREQ", "DREP"])
def test_each_message_lost_once(lost):
    left = [lost]

    def fate(data):
        name = mad.unpack(data).kind.name
        if name in left:
            left.remove(name)
            return []
        return [data]

    pair = Pair(fate)
    pair.serve()
    assert drive(pair).state is pair.accepted[0].state is State.CLOSED
    # Both sides send again at the same time, so a lost REP can be answered for twice.
    assert not left and len(pair.accepted) == 1 and pair.sent.count(lost) >= 2


@pytest.mark.parametrize("seed", range(50))
def test_loss_and_duplicates(seed):
    chance = random.Random(seed)
    pair = Pair(lambda data: [data] * chance.choices([0, 1, 2], [10, 80, 10])[0])
    pair.serve()
    one = drive(pair)
    assert one.state is State.CLOSED and len(pair.accepted) == 1
    for side in (one, pair.accepted[0]):
        assert [kind for kind, _ in side.events].count(Event.DISCONNECTED) == 1


def test_reject_and_its_duplicate():
    pair = Pair()
    pair.b.listen(SERVICE, lambda one: one.reject(b"no", reason=Reason.CONSUMER))
    one = pair.a.connect(B, SERVICE, 5)
    request = pair.flying[0]
    pair.settle()
    kind, message = one.events[0]
    assert kind is Event.REJECTED and message["reason"] == Reason.CONSUMER
    assert message.private.rstrip(b"\0") == b"no" and one.state is State.CLOSED
    pair.flying.append(request)
    pair.settle()
    assert pair.sent == ["REQ", "REJ", "REJ"]


def test_nobody_listens():
    pair = Pair()
    one = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    assert one.events[0][1]["reason"] == Reason.INVALID_SERVICE_ID


def test_peers_open_no_more_than_the_limit():
    pair = Pair()
    pair.b.limit = 3
    pair.serve()
    made = [pair.a.connect(B, SERVICE, 5 + n) for n in range(4)]
    pair.settle()
    assert [one.state for one in made] == 3 * [State.REP_RECEIVED] + [State.CLOSED]
    (_, refusal), *_ = made[3].events
    assert refusal["reason"] == 3 == Reason.NO_RESOURCES  # IBTA 12.6.7.2
    assert pair.b.counters["refused"] == 1 and len(pair.b._connections) == 3
    # What this side opens is its own matter, and takes no room.
    pair.a.listen(SERVICE, lambda one: one.accept(qpn=77))
    own = pair.b.connect(A, SERVICE, 66)
    pair.settle()
    assert own.state is State.REP_RECEIVED

    # One that is over still answers duplicates, until somebody needs its room.
    made[1].establish()
    pair.settle()
    made[1].disconnect()
    pair.settle()
    assert pair.accepted[1].closed and len(pair.b._connections) == 4
    late = pair.a.connect(B, SERVICE, 9)
    pair.settle()
    assert late.state is State.REP_RECEIVED and pair.b.counters["refused"] == 1
    assert pair.accepted[1] not in pair.b._connections.values()
    assert pair.accepted[0] in pair.b._connections.values()


def test_refused_requests_leave_nothing_behind():
    pair = Pair()
    pair.b.limit = 1
    pair.serve()
    for number in range(100):
        pair.a.connect(B, SERVICE, 5 + number)
        pair.settle()
    assert len(pair.b._connections) == 1 and pair.b.counters["refused"] == 99


def test_nobody_answers():
    pair = Pair(lambda data: [])
    one = pair.a.connect(B, SERVICE, 5)
    pair.later(RETRIES + 1)
    assert pair.sent == ["REQ"] * (RETRIES + 1) + ["REJ"]
    assert one.state is State.CLOSED and one.events[0][0] is Event.TIMED_OUT


def test_mra_makes_the_request_wait():
    pair = Pair()
    held = []
    pair.b.listen(SERVICE, held.append)
    one = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    fields = {"local_comm_id": held[0].local_id, "remote_comm_id": one.local_id}
    mra = Message(mad.MRA, one.transaction_id, {**fields, "service_timeout": 23})
    pair.a.receive(mra.pack(), B)
    pair.later(8)
    assert pair.sent == ["REQ"]
    pair.later()
    assert pair.sent == ["REQ", "REQ"]


def test_malformed_is_counted_and_dropped():
    pair = Pair()
    good = Message(mad.RTU, 1, {}).pack()
    bad = [b"", good[:-1], good + b"\0"]
    bad += [good[:at] + b"\xff" + good[at + 1 :] for at in (0, 1, 2, 3, 16, 17)]
    for data in bad:
        pair.b.receive(data, A)
    assert pair.b.counters == {"malformed": len(bad)} and not pair.sent


def test_noise_raises_nothing():
    """Each message, with random fields, in each state, from the peer and from a stranger."""
    chance = random.Random(1)
    for _ in range(300):
        pair = Pair()
        pair.serve()
        one = pair.a.connect(B, SERVICE, 5)
        pair.settle()
        if chance.random() < 0.5:
            one.establish()
            pair.settle()
        for kind in mad.MESSAGES.values():
            fields = {name: chance.getrandbits(part.width) for name, part in kind.fields.items()}
            for name in {"local_comm_id", "remote_comm_id"} & fields.keys():
                fields[name] = chance.choice([0, 2, fields[name]])
            pair.a.receive(Message(kind, 7, fields).pack(), chance.choice([B, STRANGER]))
        pair.later(2)


def test_stranger_ends_no_connection():
    pair = Pair()
    pair.serve()
    one = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    one.establish()
    fields = {"local_comm_id": one.remote_id, "remote_comm_id": one.local_id, "remote_qpn": 5}
    pair.a.receive(Message(mad.DREQ, 1, fields).pack(), STRANGER)
    assert one.state is State.ESTABLISHED and pair.a.counters["unexpected"] == 1
    pair.a.receive(Message(mad.DREQ, 1, {**fields, "remote_qpn": 6}).pack(), B)
    assert one.state is State.ESTABLISHED


def test_driver_that_starts_anew_is_no_duplicate():
    pair = Pair()
    pair.serve()
    drive(pair)
    pair.a = Manager(lambda data, peer: pair._send(data, A, peer), lambda: pair.time, first=1000)
    one = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    assert one.state is State.REP_RECEIVED and len(pair.accepted) == 2


def request(number: int, qpn: int, guid: int, service: int = SERVICE) -> bytes:
    """A REQ that a peer sends."""
    fields = {"local_comm_id": number, "local_qpn": qpn, "local_ca_guid": guid}
    fields |= {"service_id": service, "local_cm_response_timeout": 20, "max_cm_retries": 15}
    return Message(mad.REQ, number, fields).pack()


class Listening:
    """One side that listens; ``sent`` is what it has said to whom."""

    def __init__(self):
        self.time, self.sent, self.accepted = 0, [], []
        self.manager = Manager(self._send, lambda: self.time, guid=0xB)
        self.manager.listen(SERVICE, self._accept)

    def _send(self, data: bytes, peer: Peer) -> None:
        self.sent.append((mad.unpack(data), peer))

    def _accept(self, one: Connection) -> None:
        self.accepted.append(one)
        one.accept(qpn=8 + len(self.accepted))

    def rtu(self, one: Connection) -> None:
        fields = {"local_comm_id": one.remote_id, "remote_comm_id": one.local_id}
        self.manager.receive(Message(mad.RTU, 1, fields).pack(), one.peer)

    def said(self) -> list[str]:
        names = [message.kind.name for message, _ in self.sent]
        self.sent.clear()
        return names


@pytest.mark.parametrize("state", [State.REP_SENT, State.ESTABLISHED])
def test_a_request_of_a_queue_pair_that_is_connected(state):
    """A peer that has forgotten a connection asks with its QP again (IBTA 12.9.8.3.1): the REQ is
    refused as stale, and the old connection ends by a DREQ; its user is told at once."""
    side = Listening()
    side.manager.receive(request(100, 5, 0xA), A)
    (old,) = side.accepted
    if state is State.ESTABLISHED:
        side.rtu(old)
    assert old.state is state
    side.said()
    old.events.clear()
    side.manager.receive(request(200, 5, 0xA), A)
    assert len(side.accepted) == 1
    (rej, to), (dreq, _) = side.sent
    assert (rej.kind, rej["reason"], rej["message_rejected"]) == (mad.REJ, 10, 0)
    assert (rej["remote_comm_id"], rej["local_comm_id"], to) == (200, 0, A)
    assert (dreq.kind, dreq["remote_qpn"], dreq["remote_comm_id"]) == (mad.DREQ, 5, 100)
    assert old.state is State.DREQ_SENT and old in side.manager.stale
    assert list(old.events) == [(Event.DISCONNECTED, None)]
    # Until the old one is over, each REQ of the QP is refused, and no second DREQ begins.
    side.said()
    side.manager.receive(request(201, 5, 0xA), A)
    assert side.said() == ["REJ"] and side.manager.counters["stale"] == 2
    fields = {"local_comm_id": 100, "remote_comm_id": old.local_id}
    side.manager.receive(Message(mad.DREP, dreq.transaction_id, fields).pack(), A)
    assert old.closed and len(old.events) == 1
    side.manager.receive(request(202, 5, 0xA), A)
    assert side.said() == ["REP"] and len(side.accepted) == 2


def test_a_peer_that_has_forgotten_everything_connects_again():
    """From the first REQ to the second, with a peer that answers the DREQ of what it has lost."""
    pair = Pair()
    pair.serve()
    one = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    one.establish()
    pair.settle()
    pair.a = Manager(lambda data, peer: pair._send(data, A, peer), lambda: pair.time, first=1000)
    pair.sent.clear()
    again = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    assert pair.sent == ["REQ", "REJ", "DREQ", "DREP"]
    assert again.closed and again.events[0][1]["reason"] == Reason.STALE_CONNECTION
    assert pair.accepted[0].closed
    again = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    assert again.state is State.REP_RECEIVED and len(pair.accepted) == 2


def test_a_stale_connection_whose_peer_never_answers():
    """The DREQ is sent as often as any other message; then the queue pair is free."""
    side = Listening()
    side.manager.receive(request(100, 5, 0xA), A)
    side.rtu(side.accepted[0])
    side.manager.receive(request(200, 5, 0xA), A)
    side.said()
    for _ in range(RETRIES + 1):
        side.time += TIMEOUT_NS
        side.manager.tick()
    assert side.said() == ["DREQ"] * RETRIES and side.accepted[0].closed
    assert [kind for kind, _ in side.accepted[0].events].count(Event.TIMED_OUT) == 0
    side.manager.receive(request(300, 5, 0xA), A)
    assert side.said() == ["REP"]


def test_other_queue_pairs_are_not_stale():
    """Another QPN, another GUID behind the same address, a duplicate, and a connection that is
    over: none of them ends a connection. The same GUID behind another address does."""
    side = Listening()
    side.manager.receive(request(100, 5, 0xA), A)
    side.rtu(side.accepted[0])
    for number, (qpn, guid, peer) in enumerate([(6, 0xA, A), (5, 0xC, A), (5, 0, A), (5, 0, B)]):
        side.said()
        side.manager.receive(request(200 + number, qpn, guid), peer)
        assert side.said() == ["REP"], (qpn, guid)
    side.manager.receive(request(100, 5, 0xA), A)
    assert side.manager.counters == {"duplicate": 1} and len(side.accepted) == 5
    side.said()
    side.manager.receive(request(300, 5, 0xA), STRANGER)
    assert side.said() == ["REJ", "DREQ"]
    # A service that nobody listens to makes no difference.
    side.manager.receive(request(400, 6, 0xA, SERVICE + 1), A)
    assert side.said() == ["REJ", "DREQ"]


def test_a_request_that_waits_for_its_listener():
    """The first REQ has no queue pair here yet, so only the second is refused."""
    side = Listening()
    side.manager.unlisten(SERVICE)
    held: list[Connection] = []
    side.manager.listen(SERVICE, held.append)
    side.manager.receive(request(100, 5, 0xA), A)
    side.manager.receive(request(200, 5, 0xA), A)
    assert side.said() == ["REJ"] and len(held) == 1 and held[0].state is State.REQ_RECEIVED
    assert not side.manager.stale
    held[0].accept(9)
    assert side.said() == ["REP"]


def test_a_reply_of_a_queue_pair_that_is_connected():
    """A listener that has forgotten a connection answers with its QP: the REP is refused as stale,
    the user of the new connection learns why, and the old one ends by a DREQ."""
    side = Listening()
    first = side.manager.connect(A, SERVICE, 5)
    fields = {"local_qpn": 7, "local_ca_guid": 0xA, "starting_psn": 1}
    said = {"local_comm_id": 100, "remote_comm_id": first.local_id}
    side.manager.receive(Message(mad.REP, 1, fields | said).pack(), A)
    first.establish()
    second = side.manager.connect(A, SERVICE, 6)
    side.said()
    first.events.clear()
    said = {"local_comm_id": 101, "remote_comm_id": second.local_id}
    side.manager.receive(Message(mad.REP, 2, fields | said).pack(), A)
    (rej, _), (dreq, _) = side.sent
    assert (rej.kind, rej["reason"], rej["message_rejected"]) == (mad.REJ, 10, 1)
    assert (rej["local_comm_id"], rej["remote_comm_id"]) == (second.local_id, 101)
    assert (dreq.kind, dreq["remote_qpn"], dreq["remote_comm_id"]) == (mad.DREQ, 7, 100)
    assert second.closed and first.state is State.DREQ_SENT
    ((kind, message),) = second.events
    assert kind is Event.REJECTED and message["reason"] == Reason.STALE_CONNECTION
    assert list(first.events) == [(Event.DISCONNECTED, None)]
    # The REP once more, as its sender has not seen the REJ: the same answer.
    side.said()
    side.manager.receive(Message(mad.REP, 2, fields | said).pack(), A)
    assert side.said() == ["REJ"]


def test_each_side_names_its_card():
    """Without a GUID, queue pairs of two cards with the same number would be one (12.7.2)."""
    side = Listening()
    side.manager.connect(A, SERVICE, 5)
    side.manager.receive(request(100, 5, 0xA), A)
    assert [message["local_ca_guid"] for message, _ in side.sent] == [0xB, 0xB]


def test_end_is_forgotten():
    pair = Pair()
    pair.serve()
    drive(pair)
    pair.later(RETRIES)
    assert pair.a._connections
    pair.later(2)
    assert not pair.a._connections and not pair.b._connections


def test_listener_asks_for_time():
    """An MRA holds the REQ back, a duplicate of which gets the MRA again."""
    pair, held = Pair(), []
    pair.b.listen(SERVICE, held.append)
    pair.a.connect(B, SERVICE, 5)
    request = pair.flying[0]
    pair.settle()
    held[0].delay(23)
    pair.settle()
    pair.later(8)
    pair.flying.append(request)
    pair.settle()
    assert pair.sent == ["REQ", "MRA", "MRA"] and len(held) == 1
    held[0].accept(9)
    pair.settle()
    assert pair.sent[3:] == ["REP"] and held[0].state is State.REP_SENT


def test_the_request_says_how_long_the_listener_waits():
    pair = Pair()
    pair.serve()
    pair.a.timing = Timing(response_timeout=18, retries=3)
    pair.a.connect(B, SERVICE, 5)
    pair.settle()
    for _ in range(5):  # no RTU comes, so the REP goes out again
        pair.time += Timing(18).timeout_ns
        pair.b.tick()
    assert pair.sent == ["REQ", *["REP"] * 4, "REJ"]


def recorded() -> list[bytes]:
    """The MADs that Linux's rdma_cm sent for rping."""
    path = Path(__file__).parents[1] / "data" / "golden" / "rping.pcap"
    found = [pk.dissect(frame) for frame in pk.roce_frames(f for _, f in read_pcap(path))]
    return [one.payload for one in found if one.fields.get("dest_qp") == 1]


def test_messages_of_linux():
    """Each to the last byte, and what they say."""
    mads = recorded()
    messages = [mad.unpack(data) for data in mads]
    assert [one.kind.name for one in messages] == ["REQ", "REP", "RTU", "DREQ", "DREP"]
    assert [one.pack() for one in messages] == mads
    request, addresses = messages[0], mad.unpack_addresses(messages[0].private)
    assert request["service_id"] == mad.SERVICE_TCP + 7174
    ends = gid_bytes("10.0.0.1"), gid_bytes("10.0.0.2")
    assert addresses == mad.Addresses(*ends, 0x8D35)
    assert request.private.startswith(mad.pack_addresses(*ends, 0x8D35))
    fields = params.request_fields(QpType.RC, params.ConnParam(ack_timeout=19), ends)
    assert fields.items() <= request.fields.items()
    assert params.refusal(request) is None


def test_requests_begin_where_the_peer_says():
    """The PSN in a REQ or a REP is the first of what its receiver sends, as Linux does it."""
    path = Path(__file__).parents[1] / "data" / "golden" / "rping.pcap"
    said: dict[bytes, Message] = {}  # by each end's address
    first: dict[bytes, int] = {}
    for frame in pk.roce_frames(f for _, f in read_pcap(path)):
        packet, source, destination = pk.dissect(frame), frame[26:30], frame[30:34]
        if packet.fields["dest_qp"] == 1:
            said.setdefault(source, mad.unpack(packet.payload))
        elif packet.fields["opcode"] <= 0x0C:  # a request of RC
            first.setdefault(destination, packet.fields["psn"])
    assert sorted(one.kind.name for one in said.values()) == ["REP", "REQ"]
    for end, message in said.items():
        attr = params.rts_attr(params.ConnParam(), message, A, bytes(6), 7)
        assert (attr.dest_qp_num, attr.rq_psn) == (message["local_qpn"], 7)
        assert attr.sq_psn == first[end]


def test_linux_connects_and_disconnects():
    """The recorded client against the listener here, with its ids where the REP has ours."""
    client = [mad.unpack(data) for data in recorded()]
    pair = Pair()
    pair.b.listen(mad.SERVICE_TCP + 7174, lambda one: (pair.accepted.append(one), one.accept(0x21)))
    for message in (client[0], client[2], client[3]):
        if "remote_comm_id" in message.fields:
            message.fields["remote_comm_id"] = pair.accepted[0].local_id
        pair.b.receive(message.pack(), A)
    assert pair.sent == ["REP", "DREP"] and not pair.b.counters
    kinds = [kind for kind, _ in pair.accepted[0].events]
    assert kinds == [Event.ESTABLISHED, Event.DISCONNECTED]
    assert pair.accepted[0].remote_qpn == 0x21


def test_an_xrc_initiator_says_nothing_of_a_responder():
    """It asks for the extended transport XRC; who answers as a target stands where the number of an
    EE context would, and each side knows the other one by that."""
    pair, param = Pair(), params.ConnParam(responder_resources=3, initiator_depth=2)
    fields = params.request_fields(QpType.XRC_INI, param, (bytes(16), bytes(16)))
    reply = params.reply_fields(QpType.XRC_TGT, 0x21, param)
    pair.b.listen(
        mad.SERVICE_IB + 5,
        lambda one: (pair.accepted.append(one), one.accept(0x21, bytes((0, 0, 1, 7)), **reply)),
    )
    one = pair.a.connect(B, mad.SERVICE_IB + 5, 0x12, **fields)
    pair.settle()
    request = pair.accepted[0].request
    _, answer = one.events.popleft()
    packed, replied = request.pack()[24:], answer.pack()[24:]
    assert packed[8:16] == bytes.fromhex("00000000013f0005")
    assert (packed[43] >> 1 & 3, packed[51] & 7, packed[51] >> 3 & 1) == (3, 1, 0)
    assert packed[32:36] == bytes((0, 0, 0x12, 0)), "no responder resources"
    assert packed[39] == 2 and packed[47] & 7 == packed[50] & 7 == 0, "no retries"
    assert replied[12:15] == bytes(3) and replied[16:19] == bytes((0, 0, 0x21))
    assert replied[24:26] == bytes((3, 0)) and replied[27] >> 4 & 1 == 1
    assert params.accepts(QpType.XRC_TGT, request) and not params.accepts(QpType.RC, request)
    assert one.remote_qpn == 0x21 and pair.accepted[0].remote_qpn == 0x12
    one.establish()
    one.disconnect()
    pair.settle()
    assert one.closed and pair.accepted[0].closed
    with pytest.raises(RdmaError, match="ask for no connection"):
        params.request_fields(QpType.XRC_TGT, param, (bytes(16), bytes(16)))


@pytest.mark.parametrize(("service", "extended"), [(0, 1), (2, 0), (3, 0), (3, 2), (3, 7)])
def test_unknown_transports_are_refused(service, extended):
    ends = gid_bytes("10.0.0.1"), gid_bytes("10.0.0.2")
    fields = params.request_fields(QpType.RC, params.ConnParam(), ends)
    fields |= {"transport_service": service, "extended_transport": extended}
    request = Message(mad.REQ, 1, fields, mad.pack_addresses(*ends, 1))
    assert params.refusal(request) == Reason.INVALID_TRANSPORT


@pytest.mark.parametrize("ends", [("10.1.2.3", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_addresses_in_private_data(ends):
    gids = [gid_bytes(end) for end in ends]
    packed = mad.pack_addresses(*gids, 4791)
    assert packed[0] == 0 and packed[1] >> 4 == (4 if "." in ends[0] else 6)
    assert mad.unpack_addresses(packed + b"more") == mad.Addresses(*gids, 4791)
    for bad in (packed[:-1], b"\1" + packed[1:], packed[:1] + b"\x50" + packed[2:]):
        with pytest.raises(ValueError, match=r"needs 36|Unknown header"):
            mad.unpack_addresses(bad)


def test_what_no_listener_can_serve():
    fields = params.request_fields(QpType.RC, params.ConnParam(), (A.gid, B.gid))
    addresses = mad.pack_addresses(A.gid, B.gid, 1)

    def reason(private=addresses, **more):
        return params.refusal(
            Message(mad.REQ, 1, {**fields, "transport_service": 0} | more, private)
        )

    assert reason() is None
    assert reason(private=bytes([9, *addresses[1:]])) == Reason.UNSUPPORTED
    assert reason(transport_service=2) == Reason.INVALID_TRANSPORT
    assert [reason(path_mtu=code) for code in (0, 6, 15)] == [Reason.INVALID_MTU] * 3


@pytest.mark.parametrize("ends", [("10.1.2.3", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_ends_of_a_datagram(ends):
    gids = tuple(gid_bytes(end) for end in ends)
    route = {"src_gid": gids[0], "dst_gid": gids[1], "dest_qp": 1, "src_qp": 1, "qkey": 1}
    area = pk.grh_area(pk.build(0x64, payload=bytes(mad.MAD_SIZE), **route))
    assert grh.ends(area) == gids
    if len(area.lstrip(b"\0")) == 20:  # IPv4: a bad checksum is no IPv4 header
        with pytest.raises(ValueError, match="Neither"):
            grh.ends(area[:-1] + bytes([area[-1] ^ 1]))


def test_service_is_found():
    pair = Pair()
    pair.b.resolver.serve(SERVICE, Service(0x123, private=b"here"))
    with pytest.raises(ValueError, match="taken"):
        pair.b.resolver.serve(SERVICE, Service(1))
    query = pair.a.resolver.ask(B, 77, SERVICE, b"where?")
    unknown = pair.a.resolver.ask(B, 78, SERVICE + 1)
    pair.settle()
    assert query.over and query.answer["status"] == SidrStatus.VALID
    assert (query.answer["qpn"], query.answer["qkey"]) == (0x123, 0x01234567)
    assert query.answer.private.startswith(b"here\0")
    assert unknown.over and unknown.answer["status"] == SidrStatus.UNSUPPORTED_SERVICE
    pair.b.resolver.withdraw(SERVICE)
    again = pair.a.resolver.ask(B, 79, SERVICE)
    pair.settle()
    assert again.answer["status"] == SidrStatus.UNSUPPORTED_SERVICE


@pytest.mark.parametrize("seed", range(20))
def test_service_is_found_on_a_bad_network(seed):
    chance = random.Random(seed)
    pair = Pair(lambda data: [data] * chance.choices([0, 1, 2], [30, 50, 20])[0])
    pair.b.resolver.serve(SERVICE, Service(0x123))
    query = pair.a.resolver.ask(B, 77, SERVICE)
    pair.settle()
    pair.later(RETRIES)
    assert query.over and query.answer["qpn"] == 0x123


def test_nobody_answers_for_a_service():
    pair = Pair(lambda data: [])
    query = pair.a.resolver.ask(B, 77, SERVICE)
    pair.later(RETRIES)
    assert not query.over
    pair.later(5)
    assert query.over and query.answer is None and pair.sent == ["SIDR_REQ"] * (RETRIES + 1)


def test_stranger_answers_for_no_service():
    pair = Pair(lambda data: [])
    query = pair.a.resolver.ask(B, 77, SERVICE)
    answer = Message(mad.SIDR_REP, 77, {"request_id": 77, "qpn": 6})
    pair.a.receive(answer.pack(), STRANGER)
    pair.a.receive(Message(mad.SIDR_REP, 77, {"request_id": 76}).pack(), B)
    assert not query.over and pair.a.counters == {"unexpected": 2}
    pair.a.receive(answer.pack(), B)
    assert query.answer["qpn"] == 6
