"""``rocinante replay`` on the card: what it prints and writes, and how it ends."""

import json

import pytest
from click.testing import CliRunner

from hdl.abi.virtio_rdma import GSI_QKEY
from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.tools.cli import rocinante
from sim.wire.packets import reseal
from sim.wire.pcap import read_pcap
from tests.replay.captures import Capture, Talk, merged
from tests.replay.golden import GOLDEN


def replay(*arguments):
    """Exit status and output."""
    result = CliRunner().invoke(rocinante, ["replay", "--width", "64", *map(str, arguments)])
    return result.exit_code, result.output


def test_agreement_in_every_form(tmp_path):
    """Connections, one that cannot be replayed, other traffic: 0, with all of it told."""
    capture = Capture()
    merged(
        [GOLDEN / f"{name}.pcap" for name in ("rping", "mtu4096_rc_all", "ib_atomic_bw_fadd")],
        capture,
    )
    Talk(capture, qpns=(0x51, 0x52), pkey=0x8001).send(0, b"y")
    Talk(capture, qpns=(0x53, 0x54), service=Transport.XRC).packet(0, Op.SEND_ONLY, 1, b"z")
    path, facts = capture.save_ng(tmp_path / "x.pcapng"), tmp_path / "found.json"
    status, output = replay(path, "--json", facts)
    assert status == 0, output
    found = json.loads(facts.read_text())
    assert found["good"] and [one["side"] for one in found["replays"]] == ["A", "B"]
    left_out = [one["left_out"] for one in found["connections"]]
    assert [bool(one) for one in left_out] == [False, False, False, False, True]
    assert [one["service"] for one in found["connections"]] == ["UD", "RC", "RC", "RC", "RC"]
    assert "P_Key 0x8001" in left_out[4]
    assert "XRC to QP 0x54" in found["left_out"][0]
    for report in found["replays"]:
        assert report["agreed"] == report["packets"] == len(report["verdicts"])
        for one in report["verdicts"]:
            line = f"{one['packet']:>7} {one['time'] / 1e9:>12.6f}  {one['connection']:>3} "
            assert f"{line}{one['name']}" in output
            assert one["result"] == ("free" if one["free"] else "equal")
    assert "P_Key 0x8001" in output
    assert "RFC 6864" in output
    assert "all agree" in output.splitlines()[-1]


def test_capture_with_every_operation():
    """The test of the faults that replay must notice: only a difference is a failed assertion."""
    status, output = replay(GOLDEN / "rping.pcap", "--quiet")
    if status and "DIFFERENT: " not in output and "STUCK: " not in output:
        raise RuntimeError(f"It was not replayed at all: {output}")
    assert status == 0, output
    assert output.endswith("41 of 41 packets agree: all agree\n")


@pytest.mark.parametrize(
    ("number", "at", "what"),
    [
        (2, 57, "msn: recorded 0x101, sent 1"),
        (3, 60, "payload from byte"),
        (3, 45, "pkey"),
        (3, -1, "ICRC: recorded wrong, sent right"),
    ],
)
def test_one_changed_bit_in_one_of_several_connections(tmp_path, number, at, what):
    capture = Capture()
    talk, other = Talk(capture), Talk(capture, qpns=(0x12, 0x23), psns=(5, 6))
    talk.send(0, b"first")
    talk.send(0, bytes(range(40)))
    talk.send(0, b"third")
    other.write(1, bytes(100), 0x1000, 0x501)
    time, frame = capture.frames[number - 1]
    raw = bytearray(frame)
    raw[at] ^= 1
    capture.frames[number - 1] = time, (bytes(raw) if at < 0 else reseal(bytes(raw)))
    status, output = replay(capture.save(tmp_path / "x.pcap"), "--quiet")
    if what == "pkey":  # that is no packet of a QP any more: the other connection is left
        assert status == 0
        assert "P_Key" in output
    elif "payload" in what:  # what was sent is what is recorded, whatever it is
        assert status == 0
    else:
        assert status == 1, output
        assert f"DIFFERENT: packet {number}: " in output
        assert what.split(":")[0] in output
        assert "NOT as recorded" in output.splitlines()[-1]


def test_key_0_is_a_key(tmp_path):
    capture = Capture()
    talk = Talk(capture)
    talk.write(0, b"to where key 0 is", 0x1003, 0)
    talk.read(0, 0x1003, 0, b"to where key 0 is")
    status, output = replay(capture.save(tmp_path / "x.pcap"), "--side", "B")
    assert status == 0, output


def test_a_card_that_is_stuck_is_shown(tmp_path):
    """A WRITE to a region that the side file makes read-only: the card refuses, the capture not."""
    capture = Capture()
    Talk(capture).write(0, b"abc", 0x1000, 0x501)
    path = capture.save(tmp_path / "x.pcap")
    region = {
        "ip": "10.0.0.2",
        "rkey": 0x501,
        "base": 0x1000,
        "length": 9,
        "access": ["REMOTE_READ"],
    }
    (tmp_path / "x.json").write_text(json.dumps({"regions": [region]}))
    status, output = replay(path, "--side", "B")
    assert status == 1
    assert "DIFFERENT: packet 2: NAK for PSN 0x1000: recorded None, sent 0x62" in output
    assert (
        "STUCK: no packet from the card within 200 us, missing is packet 2: ACKNOWLEDGE" in output
    )
    assert "QP 0x22" in output and "Card 0" in output


def test_frames_are_fed_as_they_are(tmp_path):
    path = GOLDEN / "rc_pingpong_s64_m1024.pcap"
    before = list(read_pcap(path))
    status, output = replay(path, "--side", "A", "--json", "-")
    assert status == 0
    assert json.loads(output[output.index("{") :])["replays"][0]["fed"] == 10
    assert list(read_pcap(path)) == before


def test_what_is_special_of_datagrams(tmp_path):
    """Missing, copied, with another Q_Key: the report says so. A changed byte is a difference."""
    capture = Capture()
    talk = Talk(capture, qpns=(1, 1), service=Transport.UD)
    for n in range(6):
        talk.datagram(0, bytes([n]) * 256, qkey=7 if n == 4 else GSI_QKEY)
    talk.datagram(1, bytes(256), qkey=GSI_QKEY)
    del capture.frames[1]
    capture.frames.insert(2, capture.frames[1])
    path = capture.save(tmp_path / "x.pcap")
    status, output = replay(path, "--side", "B")
    assert status == 0, output
    for text in (
        "1 of 6 packets of 10.0.0.1 QP 0x1 are not in the capture",
        "packet 3: a copy that the network has made",
        "packet 5: not the Q_Key 0x80010000 of 10.0.0.2 QP 0x1, which must drop it",
        "6 packets fed, 1 of 1 agree",
        "completions 6",  # five datagrams, and the one that is sent
    ):
        assert text in output, output
    time, frame = capture.frames[-1]
    capture.frames[-1] = time, frame[:70] + b"x" + frame[71:]
    status, output = replay(capture.save(path), "--side", "B", "--quiet")
    assert status == 1
    assert "DIFFERENT: packet 7: ICRC: recorded wrong, sent right" in output
