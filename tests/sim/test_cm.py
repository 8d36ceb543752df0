"""The connection manager: formats, and both sides over a network that misbehaves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hdl.abi import mad, mad_docs
from hdl.abi.mad import Message, Reason
from sim.guest.cm.manager import RETRIES, TIMEOUT_NS, Connection, Event, Manager, State

SERVICE = mad.SERVICE_TCP + 7471
A, B = b"a", b"b"


class Pair:
    """Two managers and the network between them; ``fate`` gives the copies of each MAD."""

    def __init__(self, fate=lambda data: [data]):
        self.time, self.flying, self.sent = 0, [], []
        self.fate = fate
        self.a = Manager(lambda data, peer: self._send(data, A, peer), lambda: self.time)
        self.b = Manager(lambda data, peer: self._send(data, B, peer), lambda: self.time)
        self.accepted: list[Connection] = []

    def _send(self, data: bytes, source: bytes, peer: bytes) -> None:
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
            one.accept(qpn=9, private=b"yes", starting_psn=0xABCDEF)

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
    (mad.REQ, "primary_local_gid", 56, 0),
    (mad.REQ, "primary_packet_rate", 91, 2),
    (mad.REQ, "primary_ack_timeout", 95, 0),
    (mad.REQ, "alternate_local_lid", 96, 0),
    (mad.REQ, "alternate_ack_timeout", 139, 0),
    (mad.REP, "starting_psn", 20, 0),
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


def test_page_is_current():
    page = Path(__file__).resolve().parents[2] / "docs" / "cm.md"
    assert page.read_text() == mad_docs.page()


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
            pair.a.receive(Message(kind, 7, fields).pack(), chance.choice([B, b"c"]))
        pair.later(2)


def test_stranger_ends_no_connection():
    pair = Pair()
    pair.serve()
    one = pair.a.connect(B, SERVICE, 5)
    pair.settle()
    one.establish()
    fields = {"local_comm_id": one.remote_id, "remote_comm_id": one.local_id, "remote_qpn": 5}
    pair.a.receive(Message(mad.DREQ, 1, fields).pack(), b"stranger")
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


def test_end_is_forgotten():
    pair = Pair()
    pair.serve()
    drive(pair)
    pair.later(8)
    assert not pair.a._connections and not pair.b._connections
