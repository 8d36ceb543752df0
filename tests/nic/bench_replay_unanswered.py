"""Recorded traffic of services without answers into one card: UC, UD, QP1; and keys that go."""

from dataclasses import replace
from pathlib import Path

import cocotb

from hdl.abi.virtio_rdma import GSI_QKEY
from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.replay.bench import play_run
from sim.replay.machine import QUEUE
from sim.replay.plan import Plan
from sim.wire.packets import dissect, reseal
from tests.nic.bench_replay import agrees, both_sides
from tests.nic.card import CONFIG
from tests.replay.captures import Capture, Talk
from tests.replay.golden import GOLDEN
from tests.slow import QUICK

PATTERN = bytes((29 * n + n // 256) & 0xFF for n in range(9000))


def saved(capture, name):
    return capture.save(Path(f"{name}.pcap").resolve())


def free_of(reports):
    return {name for report in reports for name in report.free}


@cocotb.test()
async def datagrams_of_a_server(dut):
    """A server's QP with three clients in a VLAN; two QPs with IPv6; MADs on QP1."""
    capture = Capture()
    paths = [{}, {"hop_limit": 7, "traffic_class": 0x48}, {"traffic_class": 3}]
    clients = [
        Talk(
            capture,
            (f"10.0.1.{n + 1}", "10.0.0.9"),
            qpns=(0x31 + n, 0x77),
            psns=(0xFFFFFE + n, 0),
            vlans=(5, 5),
            service=Transport.UD,
            **path,
        )
        for n, path in enumerate(paths)
    ]
    server = 0xFFFFFD  # its one numbering, whoever gets the datagram
    for turn, size in enumerate((0, 1, 3, 64, 1000, 4096)):
        for n, talk in enumerate(clients):
            talk.datagram(0, PATTERN[turn : turn + size], solicited=int(n == 1))
            talk.psns[1], server = server, server + 1
            talk.datagram(1, PATTERN[:size], imm=b"%04d" % size, priority=n)
    six = Talk(
        capture, ("fd00::1", "fd00::2"), (0x41, 0x42), flow_label=0xABCDE, service=Transport.UD
    )
    for side in (0, 1, 0):
        six.datagram(side, PATTERN[:777])
    gsi = Talk(capture, ("10.0.1.1", "10.0.0.9"), (1, 1), (0, 9), service=Transport.UD)
    gsi.vlans = (5, 5)
    for side in (0, 1, 0, 0, 1):
        gsi.datagram(side, PATTERN[side : side + 256], qkey=GSI_QKEY, ack_request=1)
    plan, reports = await both_sides(dut, saved(capture, "server"))
    agrees(plan, reports)
    assert [len(one.ends) for one in plan.connections] == [4, 2, 2]
    assert "ack request, unanswered" in free_of(reports)
    assert max(len(report.connections) for report in reports) == 2  # the server's QP, and its QP1


@cocotb.test()
async def more_than_the_queues_hold(dut):
    """More datagrams and UC messages than a queue holds, to a machine that says nothing."""
    capture = Capture()
    talk = Talk(capture, qpns=(0x31, 0x32), service=Transport.UD)
    stream = Talk(capture, qpns=(0x33, 0x34), service=Transport.UC)
    for n in range(QUEUE + 10):
        talk.datagram(0, PATTERN[n : n + 40])
        if n % 8 == 0:
            stream.send(0, PATTERN[n : n + 9], imm=b"next")
            stream.write(0, PATTERN[n : n + 99], 0x5000 + 100 * n, 0x501)
    plan, reports = await both_sides(dut, saved(capture, "many"))
    agrees(plan, reports)
    done = [report.memory["completions"] for report in reports]
    assert done == [QUEUE + 10 + 132, QUEUE + 10 + 66]


def streams():
    """UC messages that go well, without their last one: a capture and the talk."""
    capture = Capture()
    talk = Talk(capture, mtu=256, psns=(0xFFFFF0, 7), service=Transport.UC)
    talk.send(0, PATTERN[:1000], imm=b"abcd")  # 1 to 4
    talk.write(0, PATTERN[:900], 0x2001, 0x501)  # 5 to 8
    talk.send(0, PATTERN[3:13])  # 9
    talk.write(1, PATTERN[9:600], 0x3003, 0x700, imm=b"wxyz")  # 10 to 12
    talk.send(0, PATTERN[5:1500])  # 13 to 18
    talk.write(0, PATTERN[7:700], 0x2101, 0x501, imm=b"last")  # 19 to 21
    talk.send(1, b"")  # 22
    talk.send(0, PATTERN[:300])  # 23 and 24
    return capture


@cocotb.test(skip=QUICK)
async def uc_with_losses(dut):
    """What is missing in the capture is sent, and what it breaks off does not arrive."""
    for lost in (
        (2,),
        (1,),
        (4,),
        (5,),
        (6, 7),
        (8, 9, 13),
        (9,),
        (13, 14),
        (18, 19),
        (20,),
        (24,),
    ):
        capture = streams()
        capture.frames = [one for n, one in enumerate(capture.frames, 1) if n not in lost]
        plan, reports = await both_sides(dut, saved(capture, "lost"))
        agrees(plan, reports)
        (connection,) = plan.suitable
        behind = {1, 24} & set(lost)  # nothing of its message is there before, or behind
        assert behind or "lost before the capture" in free_of(reports), lost
        assert behind or connection.remarks, lost


@cocotb.test()
async def uc_on_a_network_that_doubles_and_reorders(dut):
    for order, name in (
        ([1, 2, 2, 3, 4, *range(5, 10), 9, *range(10, 25)], None),
        ([1, 3, 2, 4, *range(5, 25)], "order on the network"),
        ([*range(1, 9), 13, 9, *range(10, 13), *range(14, 25)], "order on the network"),
    ):
        capture = streams()
        capture.frames = [capture.frames[n - 1] for n in order]
        plan = Plan(saved(capture, "order"))
        reports = []
        for letter in "AB":
            (run,), _ = plan.runs(letter, CONFIG)
            reports.append(await play_run(dut, CONFIG, "order", run))
            assert reports[-1].good, (order, reports[-1].error, reports[-1].differences[:3])
        assert name is None or name in free_of(reports)


@cocotb.test()
async def keys_that_peers_take(dut):
    """A SEND invalidates a key: the region is there before, and gone for a WRITE behind it."""
    capture = Capture()
    talk = Talk(capture)
    talk.write(0, PATTERN[:5000], 0x20000FFF, 0x2C7)
    talk.read(0, 0x20001000, 0x2C7, PATTERN[1:100])
    talk.send_and_invalidate(0, PATTERN[:100], 0x5C8)  # that nobody has used
    talk.send_and_invalidate(0, b"", 0x2C7)
    talk.write(0, PATTERN[:64], 0x20001000, 0x2C7, ack=False)
    talk.ack(1, talk.psns[0] - 1, msn=4, syndrome=0x62)
    other = Talk(capture, qpns=(0x12, 0x23), psns=(5, 6))
    other.write(0, PATTERN[:5], 0x1000, 0x901)
    plan, reports = await both_sides(dut, saved(capture, "taken"))
    agrees(plan, reports)
    # A key that names nothing is refused.
    connection = plan.connections[0]
    taker = connection.ends[0].messages[3].packets[0]
    assert taker.op == Op.SEND_ONLY_INV
    ((run,), _) = plan.runs("B", CONFIG)
    changed = replace(taker, frame=reseal(taker.frame[:54] + b"\0\0\5\xc9" + taker.frame[58:]))
    connection.packets[connection.packets.index(taker)] = changed
    assert not (await play_run(dut, CONFIG, "other key", run)).good


async def differs(dut, plan, letter, text):
    """A run of one side is not as recorded: the first thing that is said of it."""
    for run in plan.runs(letter, CONFIG)[0]:
        report = await play_run(dut, CONFIG, plan.path.name, run)
        assert not report.good
        found = [report.error, *map(str, report.differences)]
        assert any(text in one for one in found), (text, found)


def change(packet, at, bit=1):
    """Flip a bit of a packet's frame, its ICRC made right; ``at`` counts from the BTH on."""
    raw = bytearray(packet.frame)
    raw[42 + at] ^= bit
    packet.frame = reseal(bytes(raw))
    packet.parts = dissect(packet.frame)


#: Capture, packet from 0, byte behind the beginning of the BTH, what the change is to the card that
#: should send the packet, and to the one that gets it. None: nobody looks at it.
CHANGES = [
    ("ud_pingpong_s1000", 0, 20 + 77, "payload from byte 77", "memory, local buffers"),
    ("ud_pingpong_s1000", 2, 12, "qkey", "completion"),
    ("ud_pingpong_s1000", 2, 16, "deth_reserved", None),
    ("ud_pingpong_s1000", 4, 19, "src_qp", "src_qp of completion"),
    ("uc_pingpong_s4096", 9, 11, "", "completion"),
    ("uc_pingpong_s4096", 39, 12 + 5, "payload from byte 5", "memory, local buffers"),
    ("agent_uc", 15, 12 + 7, "va", "completion"),
    ("rping", 0, 20 + 30, "payload from byte 30", "memory, local buffers"),
    ("rping", 2, 14, "qkey", "completion"),
]


@cocotb.test(skip=QUICK)
async def changed_packets_are_noticed(dut):
    """A changed packet differs from what the card sends, and makes another difference when fed."""
    for name, at, byte, sent, fed in CHANGES:
        for text, own in ((sent, True), (fed, False)):
            plan = Plan(GOLDEN / f"{name}.pcap")
            packets = sorted((p for one in plan.connections for p in one.packets), key=number_of)
            sender = "A" if packets[at].parts.fields["src_gid"][-1] == 1 else "B"
            change(packets[at], byte)
            if text is not None:
                letter = sender if own else "AB"[sender == "A"]
                await differs(dut, plan, letter, text)


def number_of(packet):
    return packet.number


@cocotb.test()
async def missing_packets_are_noticed(dut):
    """A packet that the card does not send, and one that does not come to it."""
    for name in ("ud_pingpong_s1000", "uc_pingpong_s4096", "rping"):
        plan = Plan(GOLDEN / f"{name}.pcap")
        connection = plan.connections[0]
        last = connection.ends[0].messages.pop()
        await differs(dut, plan, "A", f"missing is packet {last.begins}")
        plan = Plan(GOLDEN / f"{name}.pcap")
        connection = plan.connections[0]
        connection.lost.add(connection.ends[0].messages[-1].packets[0].number)
        await differs(dut, plan, "B", "completion")


@cocotb.test()
async def a_wrong_qkey_is_dropped(dut):
    """The card sends it as it is recorded; the one that it goes to must not take it."""
    capture = Capture()
    talk = Talk(capture, qpns=(0x31, 0x32), service=Transport.UD)
    for n, qkey in enumerate((7, 7, 8, 7)):
        talk.datagram(0, PATTERN[: 10 * n], qkey=qkey)
    plan, reports = await both_sides(dut, saved(capture, "qkey"))
    agrees(plan, reports)
    assert [report.memory["completions"] for report in reports] == [4, 3]
    assert plan.connections[0].remarks == [
        "packet 3: not the Q_Key 0x7 of 10.0.0.2 QP 0x32, which must drop it"
    ]
