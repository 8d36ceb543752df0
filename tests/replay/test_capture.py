"""What a capture says, without a card: files, connections, what is left out and why."""

import random
import struct

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.utils import RawPcapNgReader

from hdl.abi.enums import Access, WcStatus
from hdl.config import NicConfig
from hdl.wire.opcodes import Operation as Op
from sim.replay.compare import FREE
from sim.replay.messages import FATAL
from sim.replay.plan import ALL_RIGHTS, Plan
from sim.rtl.env import REPO
from sim.wire.packets import build
from sim.wire.pcap import read_capture
from tests.replay.captures import Capture, Talk, merged, tagged
from tests.replay.golden import GOLDEN, MERGED, REPLAYED, RETRIED, table

CONFIG = NicConfig(width=64)
DATA = bytes(range(256)) * 20


@pytest.fixture
def capture():
    return Capture()


def plan_of(capture, tmp_path):
    return Plan(capture.save(tmp_path / "x.pcap"))


def only(capture, tmp_path):
    """The one connection of a capture."""
    (connection,) = plan_of(capture, tmp_path).connections
    return connection


# Files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
def test_pcapng_holds_the_same_frames(capture, tmp_path, order):
    talk = Talk(capture)
    talk.send(0, DATA)
    path = capture.save_ng(tmp_path / "x.pcapng", order)
    records = read_capture(path)
    assert [(one.time, one.frame) for one in records] == capture.frames
    assert [one.frame for one in records] == [frame for frame, _ in RawPcapNgReader(str(path))]
    assert [one.number for one in records] == list(range(1, len(records) + 1))
    raw = path.read_bytes()
    for size in (len(raw) - 1, len(raw) - 20, 30):
        path.write_bytes(raw[:size])
        with pytest.raises(ValueError, match="truncated"):
            read_capture(path)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
def test_pcap_of_either_order_and_resolution(tmp_path, order, magic):
    path = tmp_path / "x.pcap"
    head = struct.pack(f"{order}IHHIIII", magic, 2, 4, 0, 0, 64, 1)
    path.write_bytes(head + struct.pack(f"{order}IIII", 3, 5, 4, 9) + b"abcd")
    (record,) = read_capture(path)
    assert record.frame == b"abcd" and record.length == 9 and record.cut
    assert record.time == 3 * 10**9 + (5 if magic == 0xA1B23C4D else 5000)


def test_other_link_types_are_named(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 64, 113))
    with pytest.raises(ValueError, match=r"link type 113 \(Linux cooked\) is not Ethernet"):
        read_capture(path)


# Connections --------------------------------------------------------------------------------------


def test_connections_with_the_same_psns_are_told_apart(capture, tmp_path):
    """By what answers what; flows that nothing tells apart, in the order of their beginning."""
    talks = [Talk(capture, qpns=(0x20 + i, 0x40 - i)) for i in range(6)]
    rng = random.Random(1)
    for _ in range(40):
        talk = rng.choice(talks)
        talk.send(rng.randrange(2), DATA[: rng.randrange(4000)])
    found = {frozenset(end.qpn for end in one.ends) for one in plan_of(capture, tmp_path).suitable}
    assert found == {frozenset(talk.qpns) for talk in talks}


def test_equal_udp_ports_tell_parallel_connections_apart(capture, tmp_path):
    talks = [Talk(capture, qpns=(0x20 + i, 0x40 - i), ports=(i, i)) for i in range(1, 5)]
    for side, order in ((0, talks), (1, talks[::-1])):
        for talk in order:
            talk.write(side, b"x", 0, 0, ack=False) if not side else talk.ack(1, 0x1000, 1)
    found = {frozenset(e.qpn for e in one.ends) for one in plan_of(capture, tmp_path).suitable}
    assert found == {frozenset(talk.qpns) for talk in talks}


def test_messages_regions_and_counts(capture, tmp_path):
    talk = Talk(capture, psns=(0xFFFFFE, 7))
    talk.write(0, DATA, 0x1001, 0x500, imm=b"abcd")
    talk.read(0, 0x900, 0x500, DATA[:3000])
    talk.send(1, b"")
    connection = only(capture, tmp_path)
    assert not connection.reason and connection.mtu == 1024
    write, read = connection.ends[0].messages
    assert (write.length, write.imm, bytes(write.data)) == (len(DATA), b"abcd", DATA)
    assert (read.psn, read.count(1024), bytes(read.data)) == (5, 3, DATA[:3000])
    assert write.acknowledged and read.acknowledged
    assert [end.first_psn for end in connection.ends] == [0xFFFFFE, 7]
    assert connection.reads(0) == 1 and connection.reads(1) == 0


@pytest.mark.parametrize("name", REPLAYED + RETRIED)
def test_golden_captures_are_taken_part_in(name):
    plan = Plan(GOLDEN / f"{name}.pcap")
    assert plan.suitable == plan.connections and not plan.left_out
    for letter in "AB":
        (run,), refused = plan.runs(letter, CONFIG)
        assert not refused
        assert [place.connection for place in run.places] == plan.connections
    assert plan.config(64) == CONFIG


# What is left out ---------------------------------------------------------------------------------


def test_other_traffic_goes_by_with_its_reason(capture, tmp_path):
    talk = Talk(capture)
    talk.send(0, b"one")
    head = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    ip = IP(src="10.0.0.1", dst="10.0.0.2")
    for frame in (
        head / ARP(),
        head / ip / TCP(dport=4791),
        head / ip / ICMP(),
        head / ip / UDP(sport=4791, dport=53),
        head / Dot1Q(vlan=1) / Dot1Q(vlan=2) / ip / UDP(dport=4791) / (b"\4" + bytes(40)),
        head / IP(src="10.0.0.1", dst="10.0.0.2", frag=3) / bytes(b"\x12\xb7" * 30),
        head / ip / UDP(dport=4791) / b"short",
    ):
        capture.add(bytes(frame))
    capture.add(build(0x64, dest_qp=0xFFFFFF, qkey=1, src_qp=2, payload=bytes(256)))
    capture.add(build(0x81, dest_qp=0x22, payload=bytes(16)))
    capture.add(build(0x2C, dest_qp=0x30))
    capture.add(build(0xA4, dest_qp=0x31, payload=b"xrc"))
    talk.send(0, b"two")
    plan = plan_of(capture, tmp_path)
    (connection,) = plan.suitable
    assert len(connection.ends[0].messages) == 2
    reasons = [str(one) for one in plan.left_out]
    for text in ("ARP", "TCP", "ICMP", "UDP", "VLAN", "wrong length", "multicast", "opcode 0x2c"):
        assert any(text in reason for reason in reasons), (text, reasons)
    for text in ("CNP) to QP 0x22", "XRC to QP 0x31"):
        assert any(text in reason for reason in reasons), (text, reasons)
    assert sum(len(one.numbers) for one in plan.left_out) == 11
    assert reasons[0].startswith("packet 3: no RoCE v2: ARP")


def reasons_of(capture, tmp_path):
    return [one.reason for one in plan_of(capture, tmp_path).connections]


def test_what_is_missing_each_time_leaves_one_connection_out(capture, tmp_path):
    """Neither a gap that is acknowledged nor a packet that has changed can be replayed."""
    good, gap, again = (
        Talk(capture, qpns=(0x20 + i, 0x30 + i), psns=(i << 12, i << 16)) for i in range(1, 4)
    )
    for talk in (good, gap, again):
        talk.send(0, DATA)
    gap.psns[0] += 1
    gap.send(0, b"after a gap")
    again.psns[0] -= 1
    again.send(0, b"again")
    good.send(1, b"y")
    found = reasons_of(capture, tmp_path)
    assert found[0] == ""
    assert "an ACK for PSN 0x2006, which is not in the capture" in found[1]
    assert "PSN 0x3004 again, with something else" in found[2]


# What was lost ------------------------------------------------------------------------------------


def again(talk, count, psn):
    """The first ``count`` packets of the SEND that began at ``psn`` are sent again."""
    for at in range(count):
        op = Op.SEND_FIRST if not at else Op.SEND_LAST if at == 4 else Op.SEND_MIDDLE
        part = DATA[1024 * at : 1024 * (at + 1)]
        talk.packet(0, op, psn + at, part, ack_request=int(at == 4))


def test_a_packet_that_is_reported_missing_was_lost(capture, tmp_path):
    """Seen before it was lost, or not at all: the same is known of the rest."""
    talk = Talk(capture)
    talk.send(0, DATA, ack=False)
    talk.ack(1, 0x1002, msn=0, syndrome=0x60)
    again(talk, 5, 0x1000)
    talk.ack(1, 0x1004)
    one = only(capture, tmp_path)
    # The requester goes back to the beginning: it has not got the NAK, which acknowledges two.
    assert (one.lost, one.again, one.broken) == ({3, 6}, {}, 0)
    assert one.ends[0].messages[0].acknowledged and one.ends[0].messages[0].received
    del capture.frames[2]
    one = only(capture, tmp_path)
    assert one.lost == {5}


def test_what_is_sent_again_without_an_answer_was_lost(capture, tmp_path):
    talk = Talk(capture)
    talk.send(0, DATA, ack=False)
    again(talk, 5, 0x1000)
    talk.ack(1, 0x1004)
    assert only(capture, tmp_path).lost == {5}  # it asks for an answer; the others need not be


def test_an_ack_was_lost_when_its_requester_goes_back(capture, tmp_path):
    talk = Talk(capture)
    talk.send(0, DATA)
    again(talk, 5, 0x1000)
    talk.ack(1, 0x1004)
    one = only(capture, tmp_path)
    assert (one.lost, one.again) == ({6}, {})


def test_an_answer_that_is_repeated_is_one_to_a_doubled_request(capture, tmp_path):
    talk = Talk(capture)
    talk.send(0, b"x")
    talk.ack(1, 0x1000)
    talk.read(0, 0x100, 9, DATA[:2000])
    talk.responses(1, 0x1001, DATA[:2000])
    one = only(capture, tmp_path)
    assert not one.lost
    assert {at: [p.number for p in copies] for at, copies in one.again.items()} == {3: [1], 7: [4]}


def test_how_often_a_requester_tries(capture, tmp_path):
    """As often as it does when nothing follows; for ever when it has tried as often before."""
    talk = Talk(capture)
    for tries, rnr_retry in ((3, 2), (3, 7)):
        for _ in range(tries):
            talk.packet(0, Op.SEND_ONLY, talk.psns[0], b"x", ack_request=1)
            talk.ack(1, talk.psns[0], syndrome=0x2A)
        one = only(capture, tmp_path)
        end, message = one.ends[0], one.ends[0].messages[-1]
        assert message.refusals == tries and end.goes_back and not message.acknowledged
        gave_up = WcStatus.RNR_RETRY_EXC_ERR if rnr_retry < 7 else None
        assert (end.rnr_retry, message.failure) == (rnr_retry, gave_up)
        assert one.ends[1].rnr_timer == 10
        talk.packet(0, Op.SEND_ONLY, talk.psns[0], b"x", ack_request=1)
        talk.msns[1] += 1
        talk.ack(1, talk.psns[0])
        one = only(capture, tmp_path)
        assert one.ends[0].rnr_retry == 7 and one.ends[0].messages[-1].acknowledged
        talk.psns[0] += 1


@pytest.mark.parametrize(
    ("syndrome", "length", "refused"),
    [(0x62, 9, ""), (0x61, 9, ""), (0x62, 0, "unknown"), (0x63, 9, "unknown"), (0x64, 9, "0x64")],
)
def test_why_a_write_is_refused(capture, tmp_path, syndrome, length, refused):
    """A region that is not there, a right that the QP lacks; nothing else is known to do it."""
    talk = Talk(capture)
    talk.send(0, b"x")
    talk.write(0, bytes(length), 0x1000, 9, ack=False)
    talk.ack(1, 0x1001, msn=1, syndrome=syndrome)
    plan = plan_of(capture, tmp_path)
    runs, why = plan.runs("B", CONFIG)
    assert refused in (why.get(1) or plan.connections[0].reason)
    if not refused:
        (place,) = runs[0].places
        assert not place.regions() and place.broken()
        assert bool(place.access() & Access.REMOTE_WRITE) == (syndrome == 0x62)
        assert place.connection.ends[0].messages[1].failure == FATAL[syndrome]


def test_a_region_that_is_written_and_not_read(capture, tmp_path):
    """The same bytes are refused to a READ: the region lacks that right."""
    talk = Talk(capture)
    talk.write(0, DATA, 0x1000, 0x900)
    talk.read(0, 0x1010, 0x900, b"abc", answer=False)
    talk.ack(1, talk.psns[0] - 1, msn=1, syndrome=0x62)
    (run,), _ = plan_of(capture, tmp_path).runs("B", CONFIG)
    assert run.rights() == {0x900: ALL_RIGHTS & ~Access.REMOTE_READ}
    talk = Talk(Capture(), psns=(5, 6))
    talk.write(0, DATA, 0x1000, 0x900)
    talk.write(0, b"abc", 0x1010, 0x900, ack=False)
    talk.ack(1, talk.psns[0] - 1, msn=1, syndrome=0x62)
    runs, why = plan_of(talk.capture, tmp_path).runs("B", CONFIG)
    assert not runs and "refused now and then" in why[1]


def test_frames_that_stand_twice_are_taken_once(capture, tmp_path):
    inner = Capture()
    Talk(inner).send(0, DATA)
    for _, frame in inner.frames:
        capture.add(frame)
        capture.add(frame)
    connection = only(capture, tmp_path)
    assert not connection.reason
    assert len(connection.packets) == len(inner.frames)
    assert "captured twice" in connection.notes[0].reason


def test_packets_of_which_a_part_is_missing(tmp_path):
    capture = Capture()
    Talk(capture).send(0, DATA)
    Talk(capture, qpns=(0x31, 0x32), psns=(9, 9)).send(0, b"x")
    plan = Plan(capture.save_ng(tmp_path / "x", cut=100))
    assert plan.connections[0].reason == "packet 1: the capture holds 100 of its 1082 bytes"
    assert plan.connections[1].reason == ""


def test_only_one_direction(capture, tmp_path):
    Talk(capture).send(0, b"x", ack=False)
    assert "no packet from 10.0.0.2 back" in only(capture, tmp_path).reason


def test_other_partition_keys(capture, tmp_path):
    Talk(capture, pkey=0x8001).send(0, b"x")
    assert "P_Key 0x8001" in only(capture, tmp_path).reason


def test_tags_that_come_and_go(capture, tmp_path):
    talk = Talk(capture)
    talk.send(0, b"x")
    talk.vlans = (5, None)
    talk.send(0, b"x")
    assert "changed its MAC address or VLAN tag" in only(capture, tmp_path).reason


# Captures that begin or end in the middle ---------------------------------------------------------


def ends_of(connection):
    """The ends with the addresses 10.0.0.1 and 10.0.0.2."""
    return sorted(connection.ends, key=lambda end: end.gid)


@pytest.mark.parametrize("first", range(1, 14))
def test_beginning_in_the_middle(tmp_path, first):
    """Wherever a capture begins, whole messages and the MSN are found."""
    inner, capture = Capture(), Capture()
    talk = Talk(inner)
    talk.send(0, DATA[:3000])
    talk.read(0, 0, 9, DATA[:2500])
    talk.write(0, DATA[:2000], 0, 9)
    talk.send(1, b"y")
    talk.send(0, b"z")
    capture.frames = inner.frames[first:]
    connection = only(capture, tmp_path)
    assert not connection.reason
    a, b = ends_of(connection)
    before = sum(first > begin for begin in (0, 4, 8, 13))
    assert (len(a.messages), b.first_msn) == (4 - before, before)
    left_out = sum(len(note.numbers) for note in connection.notes)
    assert left_out + len(connection.packets) == len(capture.frames)


@pytest.mark.parametrize("count", range(2, 16))
def test_ending_in_the_middle(tmp_path, count):
    """Wherever a capture ends: messages that are not whole, or not acknowledged, are known."""
    inner, capture = Capture(), Capture()
    talk = Talk(inner)
    talk.send(1, b"y")
    talk.send(0, DATA[:3000])
    talk.read(0, 0, 9, DATA[:2500])
    talk.write(0, DATA[:2000], 0, 9)
    talk.send(0, b"z")
    capture.frames = inner.frames[:count]
    connection = only(capture, tmp_path)
    assert not connection.reason
    messages = ends_of(connection)[0].messages
    spans = ((3, 6), (7, 10), (11, 13), (14, 15))
    assert [m.acknowledged for m in messages] == [
        count >= end for begin, end in spans if count >= begin
    ]
    if count in (3, 4):
        assert not messages[0].whole and messages[0].length == 1024 * (count - 2) + 1
    if count in (8, 9):
        assert not messages[1].whole and len(messages[1].data) == 1024 * (count - 7)
    if count == 11:
        assert not messages[2].whole and messages[2].length == 2000


# Sides and runs -----------------------------------------------------------------------------------


def test_one_server_and_its_clients(capture, tmp_path):
    """Who sends first is A, everybody with the same peer too; the server is one card."""
    clients = [
        Talk(capture, (f"10.0.0.{i}", "10.0.0.9"), qpns=(0x11, 0x20 + i), psns=(i << 8, 0))
        for i in range(1, 4)
    ]
    clients[0].send(0, b"x")
    clients[1].send(1, b"x")
    clients[2].send(0, b"x")
    plan = plan_of(capture, tmp_path)
    sides = {letter: plan.runs(letter, CONFIG)[0] for letter in "AB"}
    assert [[p.end.address for p in run.places] for run in sides["A"]] == [
        ["10.0.0.1"],
        ["10.0.0.2"],
        ["10.0.0.3"],
    ]
    assert [[p.end.address for p in run.places] for run in sides["B"]] == [["10.0.0.9"] * 3]


def test_three_machines_in_a_ring(capture, tmp_path):
    names = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    for i in range(3):
        Talk(capture, (names[i], names[i - 2]), psns=(i << 8, i << 9)).send(0, b"x")
    plan = plan_of(capture, tmp_path)
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert not refused and sum(len(run.places) for run in runs) == 3


def test_numbers_that_share_a_place_come_in_a_further_run(capture, tmp_path):
    Talk(capture, qpns=(0x11, 0x22)).send(0, b"x")
    Talk(capture, qpns=(0x91, 0x23), psns=(1, 1)).send(0, b"x")  # 0x91 = 0x11 + 128 pairs
    Talk(capture, qpns=(0x12, 0x24), psns=(2, 2)).write(0, b"x", 0, 0x501)
    Talk(capture, qpns=(0x13, 0x25), psns=(3, 3)).write(0, b"x", 0, 0x502)
    plan = plan_of(capture, tmp_path)
    assert [len(run.places) for run in plan.runs("A", CONFIG)[0]] == [3, 1]
    assert [len(run.places) for run in plan.runs("B", CONFIG)[0]] == [3, 1]


def test_one_address_in_two_vlans_comes_in_a_further_run(capture, tmp_path):
    Talk(capture, vlans=(5, 5)).send(0, b"x")
    Talk(capture, qpns=(0x12, 0x23), psns=(1, 1), vlans=(6, 6)).send(0, b"x")
    plan = plan_of(capture, tmp_path)
    assert [len(run.places) for run in plan.runs("A", CONFIG)[0]] == [1, 1]


def test_larger_tables_when_the_numbers_need_them(capture, tmp_path):
    Talk(capture, qpns=(0x80, 0x101)).write(0, b"x", 0, 0x1234_56)
    config = plan_of(capture, tmp_path).config(64)
    assert (config.qps, config.mrs) == (512, 65536)
    runs, refused = plan_of(capture, tmp_path).runs("B", config)
    assert runs and not refused


def test_numbers_that_no_card_can_have(capture, tmp_path):
    Talk(capture, qpns=(0x11, 0x22)).write(0, b"x", 0, 0x12345678)
    plan = plan_of(capture, tmp_path)
    assert plan.config(64) == CONFIG
    assert [len(run.places) for run in plan.runs("A", CONFIG)[0]] == [1]
    runs, refused = plan.runs("B", CONFIG)
    assert not runs and "0x12345678" in refused[1]


def test_many_outstanding_reads(capture, tmp_path):
    talk = Talk(capture)
    for _ in range(20):
        talk.read(0, 0, 9, b"abc", answer=False)
    for i in range(20):
        talk.responses(1, 0x1000 + i, b"abc")
    plan = plan_of(capture, tmp_path)
    assert plan.connections[0].reads(0) == 20
    assert "20 READs outstanding" in plan.runs("A", CONFIG)[1][1]
    assert plan.config(64).max_rd_atomic == 128


def test_more_memory_than_a_simulation_has(capture, tmp_path):
    talk = Talk(capture)
    talk.read(0, 0, 9, b"abc", answer=False)
    talk.packet(0, Op.READ_REQUEST, talk.psns[0], va=0, rkey=9, dma_length=1 << 31)
    talk.responses(1, 0x1000, b"abc")
    plan = plan_of(capture, tmp_path)
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert not runs and "bytes of memory" in refused[1]


def test_a_wrong_icrc_in_what_would_be_fed(capture, tmp_path):
    talk = Talk(capture)
    talk.send(0, b"abcd")
    time, frame = capture.frames[0]
    capture.frames[0] = (time, frame[:-1] + bytes([frame[-1] ^ 1]))
    plan = plan_of(capture, tmp_path)
    assert plan.runs("A", CONFIG)[0] and "wrong ICRC" in plan.runs("B", CONFIG)[1][1]


def test_merged_golden_captures(capture, tmp_path):
    """Connections between the same machines, all at once, with a tag and other traffic."""
    merged([GOLDEN / f"{name}.pcap" for name in MERGED], capture)
    capture.frames = [(time, tagged(frame, 7)) for time, frame in capture.frames]
    plan = plan_of(capture, tmp_path)
    assert plan.suitable == plan.connections and not plan.left_out
    assert len(plan.connections) == len(MERGED) + 1  # rping is two: RC, and QP1
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert not refused
        assert {p.connection.number for run in runs for p in run.places} == {
            one.number for one in plan.suitable
        }
        assert all(place.end.vlan == 7 for run in runs for place in run.places)


def test_broken_captures_never_end_in_a_traceback(tmp_path):
    """Bytes of real captures changed at random: either a reason or one line."""
    rng = random.Random(5)
    raws = [(GOLDEN / f"{name}.pcap").read_bytes() for name in ("rping", "ipv6_rc_all")]
    path = tmp_path / "x.pcap"
    for turn in range(60):
        raw = bytearray(rng.choice(raws))
        for _ in range(rng.choice((1, 5, 40))):
            raw[rng.randrange(24 if turn % 2 else 0, len(raw))] = rng.randrange(256)
        path.write_bytes(raw[: rng.choice((len(raw), len(raw), rng.randrange(len(raw))))])
        try:
            plan = Plan(path)
        except ValueError:
            continue
        for letter in "AB":
            plan.runs(letter, plan.config(64))


def test_what_becomes_of_the_golden_captures():
    assert (GOLDEN / "replayed.txt").read_text().splitlines() == table()


def test_documentation_says_which_differences_are_free():
    text = (REPO / "docs" / "replay.md").read_text()
    for name, clause in FREE.items():
        assert f"| {name} | {clause} |" in text
