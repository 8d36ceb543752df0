"""What a capture says of UC, UD and QP1, and of keys that are invalidated, without a card."""

import pytest

from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_rdma import GSI_QKEY
from hdl.config import NicConfig
from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.replay.plan import Plan
from sim.wire.packets import grh_area
from tests.replay.captures import Capture, Talk

CONFIG = NicConfig(width=64)
DATA = bytes(range(256)) * 20
QKEY = 0x11111111


@pytest.fixture
def capture():
    return Capture()


def plan_of(capture, tmp_path, lost=()):
    capture.frames = [one for n, one in enumerate(capture.frames, 1) if n not in lost]
    return Plan(capture.save(tmp_path / "x.pcap"))


def only(capture, tmp_path, lost=()):
    (connection,) = plan_of(capture, tmp_path, lost).connections
    return connection


def stream(capture, **ends):
    return Talk(capture, mtu=256, service=Transport.UC, **ends)


def datagrams(capture, *names, **path):
    return Talk(capture, *names, service=Transport.UD, **path)


# UC -----------------------------------------------------------------------------------------------


def test_a_connection_of_one_flow(capture, tmp_path):
    """The QP of the end that nobody talks to is not known, and both ends can be replayed."""
    stream(capture).send(0, DATA[:700], imm=b"abcd")
    plan = plan_of(capture, tmp_path)
    (connection,) = plan.suitable
    assert [end.qpn for end in connection.ends] == [0, 0x22]
    assert "QP unknown" in str(connection) and connection.mtu == 256
    (sent,), (got,) = connection.ends[0].messages, connection.incoming(1)
    for message in (sent, got):
        assert (bytes(message.data), message.imm) == (DATA[:700], b"abcd")
        assert message.opcode == WrOpcode.SEND_WITH_IMM
    assert sent.acknowledged and got.received
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert len(runs) == 1 and not refused


def talk_of_all(capture):
    """Packets 1 to 3: a SEND; 4: a SEND; 5 to 7: a WRITE; 8 to 10: a SEND with immediate."""
    talk = stream(capture, psns=(0xFFFFFC, 0))
    talk.send(0, DATA[:700])
    talk.send(0, DATA[:20])
    talk.write(0, DATA[:600], 0x1000, 0x501)
    talk.send(0, DATA[:600], imm=b"last")


@pytest.mark.parametrize(
    ("lost", "spans", "arrived"),
    [
        ((), [(0, 3), (3, 1), (4, 3), (7, 3)], [3, 1, 3, 3]),
        ((2,), [(0, 3), (3, 1), (4, 3), (7, 3)], [-1, 1, 3, 3]),
        ((3,), [(0, 3), (3, 1), (4, 3), (7, 3)], [-2, 1, 3, 3]),
        ((3, 4), [(0, 4), (4, 3), (7, 3)], [-2, 3, 3]),
        ((4,), [(0, 3), (3, 1), (4, 3), (7, 3)], [3, 3, 3]),
        ((5,), [(0, 3), (3, 1), (4, 3), (7, 3)], [3, 1, 3]),
        ((4, 5), [(0, 3), (3, 4), (7, 3)], [3, 3]),
        ((7, 8), [(0, 3), (3, 1), (4, 3), (7, 3)], [3, 1, -2]),
        ((10,), [(0, 3), (3, 1), (4, 3), (7, 3)], [3, 1, 3, -2]),
    ],
)
def test_what_a_gap_means(capture, tmp_path, lost, spans, arrived):
    """For the sender: (first PSN, packets) of each message. For the receiver: packets of each
    message that have come, negative if it is broken off.
    """
    talk_of_all(capture)
    connection = only(capture, tmp_path, lost)
    assert not connection.reason
    mtu = connection.mtu
    assert [(one.psn, one.count(mtu)) for one in connection.ends[0].messages] == spans
    found = [one.kept if one.received else -one.kept for one in connection.incoming(1)]
    assert found == arrived
    inside = [n for n in lost if n < 10]
    assert bool(connection.remarks) == bool(inside)
    if inside:
        assert connection.remarks[0].startswith(f"{len(inside)} of 10 packets of 10.0.0.1")


def test_a_message_that_is_broken_off_leaves_its_receive(capture, tmp_path):
    talk_of_all(capture)
    connection = only(capture, tmp_path, (3,))
    broken, short, *_ = connection.incoming(1)
    assert connection.receives(1)[0] is short and broken.shares is short
    assert short.receive_size == short.least == 512


def test_copies_and_overtaking(capture, tmp_path):
    talk_of_all(capture)
    order = [1, 2, 2, 3, 4, 4, 6, 5, 7, 8, 9, 10]
    capture.frames = [capture.frames[n - 1] for n in order]
    connection = only(capture, tmp_path)
    assert [one.psn for one in connection.ends[0].messages] == [0, 3, 4, 7]
    assert [p.number for p in connection.sent(0)] == [1, 2, 4, 5, 7, 8, 9, 10, 11, 12]
    assert "packets 3, 6: a copy" in connection.remarks[0]
    # The copy of the second packet breaks its SEND off; that of a whole SEND is one more; of the
    # WRITE, the beginning comes too late for what is behind it.
    kept = [one.kept if one.received else -one.kept for one in connection.incoming(1)]
    assert kept == [-2, 1, 1, -1, 3]


def test_a_qp_that_is_made_anew(capture, tmp_path):
    """Other PSNs, or the same with other packets: the rest is not of the same QP."""
    for psn, text in ((0x900000, "is far from"), (0x1000, "again, with something else")):
        inner = Capture()
        talk = stream(inner)
        talk.send(0, DATA[:300])
        talk.psns[0] = psn
        talk.send(0, DATA[1:300])
        connection = only(inner, tmp_path)
        assert len(connection.packets) == 2 and text in str(connection.notes[0])


# UD -----------------------------------------------------------------------------------------------


def test_qps_that_have_talked_are_one_connection(capture, tmp_path):
    """A server and two clients, and the QP1 of all: sides, Q_Keys, receives."""
    clients = [
        datagrams(capture, (f"10.0.0.{n}", "10.0.0.9"), (0x30 + n, 0x77), (n << 8, 0))
        for n in (1, 2)
    ]
    for n, talk in enumerate(clients):
        talk.datagram(0, DATA[:10], imm=b"imm%d" % n)
        talk.psns[1] = n
        talk.datagram(1, b"answer")
    datagrams(capture, ("10.0.0.1", "10.0.0.9"), (1, 1)).datagram(0, DATA[:256], qkey=GSI_QKEY)
    plan = plan_of(capture, tmp_path)
    talks, gsi = plan.suitable
    assert [len(one.ends) for one in (talks, gsi)] == [3, 2]
    assert [end.qkey for end in (*talks.ends, *gsi.ends)] == [QKEY] * 3 + [GSI_QKEY] * 2
    server = next(at for at, end in enumerate(talks.ends) if end.qpn == 0x77)
    assert [bytes(one.data) for one in talks.ends[server].messages] == [b"answer"] * 2
    got = talks.receives(server)
    assert [bytes(one.imm) for one in got] == [b"imm0", b"imm1"]
    assert got[0].prefix == grh_area(capture.frames[0][1]) and got[0].receive_size == 50
    sides = {letter: plan.runs(letter, CONFIG)[0] for letter in "AB"}
    ends = {
        letter: [[str(place.end) for place in run.places] for run in runs]
        for letter, runs in sides.items()
    }
    assert ends == {
        "A": [["10.0.0.1 QP 0x31", "10.0.0.1 QP 0x1"], ["10.0.0.2 QP 0x32"]],
        "B": [["10.0.0.9 QP 0x77", "10.0.0.9 QP 0x1"]],
    }


def test_datagrams_that_are_missing(capture, tmp_path):
    """The card sends something in their place; nobody gets it."""
    talk = datagrams(capture)
    for n in range(5):
        talk.datagram(0, DATA[:n])
    connection = only(capture, tmp_path, (2, 3))
    assert [len(one.packets) for one in connection.ends[0].messages] == [1, 0, 0, 1, 1]
    assert len(connection.incoming(1)) == 3
    assert connection.remarks == [
        "2 of 5 packets of 10.0.0.1 QP 0x11 are not in the capture: their PSNs are missing"
    ]


def test_q_keys(capture, tmp_path):
    talk = datagrams(capture)
    for qkey in (7, 7, 9):
        talk.datagram(0, b"x", qkey=qkey)
    talk.datagram(1, b"x", qkey=5)
    connection = only(capture, tmp_path)
    assert [end.qkey for end in connection.ends] == [5, 7]
    assert len(connection.incoming(1)) == 2 and len(connection.sent(0)) == 3
    assert "packet 3: not the Q_Key 0x7 of 10.0.0.2 QP 0x22" in connection.remarks[0]


def test_a_privileged_q_key_is_the_qps_own(capture, tmp_path):
    """A card sends one with bit 31 only if its QP has it."""
    talk = datagrams(capture)
    talk.datagram(0, b"x", qkey=1 << 31 | 5)
    connection = only(capture, tmp_path)
    assert connection.ends[0].qkey == 1 << 31 | 5 and not any(connection.refusals)
    talk.datagram(1, b"x", qkey=6)
    plan = plan_of(capture, tmp_path)
    assert "Q_Key 0x80000005, and has 0x6" in plan.runs("A", CONFIG)[1][1]


def test_datagrams_that_are_too_long(capture, tmp_path):
    datagrams(capture).datagram(0, bytes(4100))
    assert "packet 1: a datagram of 4100 bytes" in only(capture, tmp_path).reason


# Keys that are invalidated ------------------------------------------------------------------------


def test_a_key_that_a_send_takes(capture, tmp_path):
    """Its region is there before, and gone for what is refused behind it."""
    talk = Talk(capture)
    talk.write(0, DATA[:100], 0x1000, 0x2C7)
    talk.send_and_invalidate(0, b"x", 0x2C7)
    talk.write(0, DATA[:64], 0x1000, 0x2C7, ack=False)
    talk.ack(1, talk.psns[0] - 1, msn=2, syndrome=0x62)
    (run,), refused = plan_of(capture, tmp_path).runs("B", CONFIG)
    assert not refused and run.invalidated() == {0x2C7: 3}
    assert run.regions() == {0x2C7: (0x1000, 0x1064)}
    (message,) = [one for one in run.places[0].incoming if one.invalidates is not None]
    assert (message.opcode, message.packets[0].op) == (WrOpcode.SEND_WITH_INV, Op.SEND_ONLY_INV)


def test_a_key_that_is_used_after_it_was_taken(capture, tmp_path):
    talk = Talk(capture)
    talk.send_and_invalidate(0, b"x", 0x2C7)
    talk.write(0, DATA[:100], 0x1000, 0x2C7)
    runs, refused = plan_of(capture, tmp_path).runs("B", CONFIG)
    assert not runs and "0x2c7 is used after it has been invalidated" in refused[1]
