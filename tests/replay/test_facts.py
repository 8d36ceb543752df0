"""The side file, the comparison of single packets, and the command's answers to bad input."""

import gzip
import json
import os
import struct

import pytest
from click.testing import CliRunner

from hdl.abi.enums import Access
from hdl.wire.opcodes import Operation as Op
from sim.replay.capture import Packet, numbers_text
from sim.replay.compare import FREE, Report, as_sent, differences
from sim.replay.facts import Facts
from sim.replay.plan import Plan
from sim.tools.cli import rocinante
from sim.wire.packets import build, dissect, gid_bytes, reseal
from tests.replay.captures import Capture, Talk, tagged

A, B = "10.0.0.1", "10.0.0.2"
STATED = {
    "side_a": B,
    "connections": [
        {
            "ends": [{"ip": A, "qpn": "0x11", "msn": 5}, {"ip": B, "qpn": 34, "msn": "0xFFFFFF"}],
            "path_mtu": 4096,
        }
    ],
    "regions": [
        {
            "ip": B,
            "rkey": 7,
            "base": "0x1000",
            "length": 64,
            "access": ["REMOTE_READ"],
            "data": "00ff",
        }
    ],
}


def load(tmp_path, value):
    path = tmp_path / "x.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return Facts.load(path)


# The side file ------------------------------------------------------------------------------------


def test_what_is_stated_is_taken(tmp_path):
    capture = Capture()
    talk = Talk(capture)
    talk.send(0, bytes(300))
    talk.read(0, 0x1010, 7, b"abc")
    facts = load(tmp_path, STATED)
    plan = Plan(capture.save(tmp_path / "x.pcap"), facts)
    (connection,) = plan.suitable
    assert connection.mtu == 4096
    assert [end.first_msn for end in connection.ends] == [5, 0xFFFFFF]
    assert plan.runs("A", plan.config(64))[0][0].places[0].end.address == B
    (region,) = facts.regions
    assert (region.gid, region.base, region.data) == (gid_bytes(B), 0x1000, b"\x00\xff")
    assert region.access == Access.LOCAL_WRITE | Access.REMOTE_READ


def test_stated_ends_join_flows(tmp_path):
    """Two connections that look alike are joined as the side file says."""
    capture = Capture()
    talks = [Talk(capture, qpns=(0x20 + i, 0x40 + i)) for i in range(2)]
    for talk in talks:
        talk.write(0, b"x", 0, 0, ack=False)
    for talk in talks:
        talk.ack(1, 0x1000, 1)
    ends = [[{"ip": A, "qpn": 0x20 + i}, {"ip": B, "qpn": 0x41 - i}] for i in range(2)]
    facts = load(tmp_path, {"connections": [{"ends": two} for two in ends]})
    path = capture.save(tmp_path / "x.pcap")
    for plan, wanted in (
        (Plan(path), ({0x20, 0x40}, {0x21, 0x41})),
        (Plan(path, facts), ({0x21, 0x40}, {0x20, 0x41})),
    ):
        assert tuple({end.qpn for end in one.ends} for one in plan.connections) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{", "no JSON"),
        ([], "must be an object"),
        ({"sides": 1}, "has no 'sides', only side_a, connections, regions"),
        ({"side_a": "here"}, "side_a must be an IP address, not 'here'"),
        ({"side_a": 5}, "side_a must be a list"),
        ({"connections": {}}, "connections must be a list"),
        ({"connections": [{}]}, r"connections\[0\] needs 'ends'"),
        ({"connections": [{"ends": []}]}, "must be two, not 0"),
        ({"connections": [{"ends": [{"ip": A}] * 2}]}, r"ends\[0\] needs 'qpn'"),
        (
            {"connections": [{"ends": [{"ip": A, "qpn": 1 << 24}] * 2}]},
            "qpn must be 0x1 to 0xffffff",
        ),
        ({"connections": [{"ends": [{"ip": A, "qpn": True}] * 2}]}, "not True"),
        ({"connections": [{"ends": [], "path_mtu": 1000}]}, "path_mtu must be one of"),
        ({"regions": [{"ip": A, "rkey": 1, "base": 0}]}, "needs 'length'"),
        (
            {"regions": [{"ip": A, "rkey": 1, "base": 0, "length": 1, "access": ["ALL"]}]},
            "access has no 'ALL'",
        ),
        (
            {"regions": [{"ip": A, "rkey": 1, "base": 0, "length": 1, "data": "x"}]},
            "must be bytes in hexadecimal",
        ),
        (
            {"regions": [{"ip": A, "rkey": 1, "base": 0, "length": 1, "data": "0011"}]},
            "data has 2 bytes, the region 1",
        ),
    ],
)
def test_what_a_side_file_may_not_say(tmp_path, value, text):
    with pytest.raises(ValueError, match=text) as caught:
        load(tmp_path, value)
    assert "\n" not in str(caught.value)


# Single packets -----------------------------------------------------------------------------------


def packet(frame):
    return Packet(1, 0, frame, dissect(frame))


def changed(frame, at, value):
    raw = bytearray(frame)
    raw[at] = value
    return reseal(bytes(raw))


WRITE = build(Op.WRITE_ONLY, payload=b"abcde", va=1, rkey=2, dma_length=5, pkey=0xFFFF, psn=9)
SEND = build(Op.SEND_ONLY, pkey=0xFFFF, psn=9)  # 58 bytes, and padding
ACK = build(Op.ACKNOWLEDGE, syndrome=0x1F, msn=3, pkey=0xFFFF, psn=9)


@pytest.mark.parametrize(
    ("recorded", "sent", "name"),
    [
        (WRITE, changed(WRITE, 34, 0xD1), "udp source port"),
        (WRITE, changed(WRITE, 18, 1), "ip identification"),
        (changed(WRITE, 41, 7), WRITE, "udp checksum"),
        (changed(WRITE, 15, 3), changed(WRITE, 15, 2), "congestion mark"),
        (SEND, SEND[:58] + b"\1\2", "frame padding"),
        (WRITE + b"FCS.", WRITE, "frame padding"),
        (WRITE, changed(WRITE, 50, 0x80), "ack request"),
        (ACK, changed(ACK, 54, 3), "credit code"),
        (WRITE, changed(WRITE, 43, WRITE[43] | 0x40), "migreq"),
    ],
)
def test_differences_that_are_free(recorded, sent, name):
    assert differences(packet(recorded), sent) == ([], [name])
    assert name in FREE


@pytest.mark.parametrize(
    ("recorded", "sent", "what"),
    [
        (WRITE, changed(WRITE, 41, 7), "udp checksum"),
        (changed(WRITE, 15, 2), changed(WRITE, 15, 3), "congestion mark"),
        (WRITE, changed(WRITE, 15, 4), "Ethernet/IP/UDP"),
        (WRITE, changed(WRITE, 0, 4), "Ethernet/IP/UDP"),
        (changed(WRITE, 50, 0x80), WRITE, "ack_request"),
        (ACK, changed(ACK, 54, 0x3F), "syndrome"),
        (ACK, changed(ACK, 57, 4), "msn"),
        (WRITE, changed(WRITE, 53, 8), "psn"),
        (WRITE, changed(WRITE, 70, 0), "payload from byte 0"),
        (WRITE, changed(WRITE, 74, 0), "payload from byte 4"),
        (WRITE, WRITE[:-1] + bytes([WRITE[-1] ^ 1]), "ICRC"),
        (WRITE[:-1] + bytes([WRITE[-1] ^ 1]), WRITE, "ICRC"),
        (WRITE, changed(WRITE, 22, 9), "Ethernet/IP/UDP"),
        (WRITE, changed(WRITE, 34, 0x40), "udp source port"),
        (WRITE, changed(WRITE, 75, 1), "pad"),
        (WRITE, WRITE[:24] + b"\0\0" + WRITE[26:], "IPv4 header checksum"),
        (WRITE, tagged(WRITE, 3), "Ethernet/IP/UDP"),
        (tagged(WRITE, 3, 1), tagged(WRITE, 3, 2), "Ethernet/IP/UDP"),
        (WRITE, WRITE + b"\0", "frame padding"),
        (SEND, SEND + b"\0", "frame padding"),
        (WRITE, ACK, "opcode"),
    ],
)
def test_differences_that_count(recorded, sent, what):
    found, _ = differences(packet(recorded), sent)
    assert what in [one.what for one in found]
    assert all(str(one).startswith("packet 1: ") for one in found)


@pytest.mark.parametrize("v6", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_every_bit_counts_unless_it_is_free(v6, again):
    """One bit of a sent frame is wrong, its checksums made right ``again`` or not."""
    gids = [gid_bytes(f"fd00::{i}" if v6 else f"10.0.0.{i}") for i in (1, 2)]
    frame = build(
        Op.WRITE_ONLY_IMM,
        src_gid=gids[0],
        dst_gid=gids[1],
        payload=b"abcde",
        va=1,
        rkey=2,
        dma_length=5,
        imm=b"imm!",
        pkey=0xFFFF,
        psn=9,
    )
    bth = 62 if v6 else 42
    # IP identification, UDP source port (in 49152-65535), MigReq, AckReq; a CE mark is not sent.
    free = {8 * (bth + 1) + 6, 8 * (bth + 8) + 7, *range(8 * (bth - 7), 8 * (bth - 6))}
    free |= set(range(8 * (bth - 8), 8 * (bth - 8) + 6))
    if not v6:
        free |= set(range(8 * 18, 8 * 20))
    unnoticed = set()
    for bit in range(8 * len(frame)):
        raw = bytearray(frame)
        raw[bit // 8] ^= 1 << bit % 8
        try:
            sent = reseal(bytes(raw)) if again else bytes(raw)
            found, _ = differences(packet(frame), sent)
        except (ValueError, IndexError, struct.error):
            continue  # it is no RoCE packet any more
        if not found:
            unnoticed.add(bit)
    sealed = {bit for bit in range(8 * (len(frame) - 4), 8 * len(frame))}  # reseal mends them
    assert unnoticed == ((free | sealed | (_sums(v6))) if again else set())


def _sums(v6):
    """The IPv4 header checksum, which ``reseal`` mends; the UDP checksum is 0."""
    return set() if v6 else set(range(8 * 24, 8 * 26))


def test_an_ack_that_coalesces_may_have_another_psn_and_msn_only():
    other = build(Op.ACKNOWLEDGE, syndrome=0x1F, msn=5, pkey=0xFFFF, psn=11)
    assert differences(as_sent(packet(ACK), other), other) == ([], [])
    wrong = build(Op.ACKNOWLEDGE, syndrome=0x1F, msn=5, pkey=0xFFFF, psn=11, dest_qp=3)
    found, _ = differences(as_sent(packet(ACK), wrong), wrong)
    assert [one.what for one in found] == ["dest_qp"]


def test_what_is_not_listed_is_not_free():
    with pytest.raises(KeyError):
        Report("x", "A").note("payload")


def test_packet_numbers_as_text():
    assert numbers_text([3, 1, 2, 7]) == "packets 1-3, 7"
    assert numbers_text([5]) == "packet 5"
    assert numbers_text(range(1, 40, 2)) == "packets 1, 3, 5, 7, 9, ... (20 in all)"


# The command --------------------------------------------------------------------------------------


def refusal(*arguments):
    """The one line that a command ends with."""
    result = CliRunner().invoke(rocinante, ["replay", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    (line,) = result.output.strip().splitlines()
    return line


def test_files_that_cannot_be_replayed(tmp_path):
    path = tmp_path / "x.pcap"
    assert "No such file" in refusal(path)
    assert "Is a directory" in refusal(tmp_path)
    path.write_bytes(b"")
    assert "no capture: 0 bytes" in refusal(path)
    path.write_bytes(b"hello, this is no capture at all")
    assert "no capture: magic" in refusal(path)
    path.write_bytes(gzip.compress(bytes(100)))
    assert "no capture: magic 1f8b0800 (gzip)" in refusal(path)
    os.mkfifo(tmp_path / "pipe")
    assert "no file that can be read twice" in refusal(tmp_path / "pipe")
    path.write_bytes(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 64, 101))
    assert "link type 101 (raw IP) is not Ethernet" in refusal(path)
    path.write_bytes(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 64, 1))
    assert "no packet of RoCE v2 of RC, UC or UD; no packet at all" in refusal(path)
    capture = Capture()
    Talk(capture).send(0, b"x")
    capture.save(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert "truncated" in refusal(path)
    capture = Capture()
    capture.add(build(0xA4, dest_qp=5, payload=b"x"))
    assert "packet 1: XRC to QP 0x5: only RC, UC and UD are replayed" in refusal(capture.save(path))
    capture = Capture()
    talk = Talk(capture)
    talk.send(0, b"x", ack=False)
    talk.ack(1, 0x1000, syndrome=0x64)
    assert "NAK with syndrome 0x64" in refusal(capture.save(path))
    capture = Capture()
    for kind in range(0x4000, 0x4064):
        capture.add(bytes(12) + struct.pack("!H", kind) + bytes(46))
    noise = refusal(capture.save(path))  # is told, but not all of it
    assert "packet 8: no RoCE v2: EtherType 0x4007; and 92 more reasons" in noise
    capture = Capture()
    Talk(capture).send(0, bytes(900))
    assert "holds 90 of its" in refusal(capture.save_ng(path, cut=90))


def test_side_files_that_cannot_be_taken(tmp_path):
    capture = Capture()
    Talk(capture).send(0, b"x")
    path = capture.save(tmp_path / "x.pcap")
    assert "No such file" in refusal(path, "--facts", tmp_path / "none.json")
    side = tmp_path / "x.json"
    assert "side file" in refusal(path, "--json", side)
    for stated in (
        {"side_a": "10.0.0.7"},
        {"connections": [{"ends": [{"ip": A, "qpn": 0x11}, {"ip": B, "qpn": 0x23}]}]},
        {"regions": [{"ip": "10.0.0.7", "rkey": 1, "base": 0, "length": 1}]},
    ):
        side.write_text(json.dumps(stated))
        assert "is not in it" in refusal(path)
    side.write_text('{"sides": 3}')
    assert "x.json: the side file has no 'sides'" in refusal(path)
