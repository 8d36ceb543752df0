"""Recorded traffic into one card; and mutations of it, which must be noticed."""

import random
from pathlib import Path

import cocotb

from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.replay.bench import play_run
from sim.replay.compare import FREE
from sim.replay.pairing import RESPONSES
from sim.replay.plan import Plan
from sim.wire.packets import dissect, reseal
from tests.nic.card import CONFIG
from tests.replay.captures import Capture, Talk, merged, tagged
from tests.replay.golden import GOLDEN, LONG, MERGED, ONE_SIDED, REPLAYED, RETRIED, WIDE
from tests.slow import QUICK

PATTERN = bytes((17 * n + n // 256) & 0xFF for n in range(4000))


async def both_sides(dut, path):
    """Every run of a capture; its reports."""
    plan = Plan(path)
    reports = []
    for letter in "AB":
        runs, refused = plan.runs(letter, CONFIG)
        assert not refused, refused
        for run in runs:
            reports.append(await play_run(dut, CONFIG, Path(path).name, run))
    return plan, reports


def agrees(plan, reports):
    """Everything agrees, and every packet that can be replayed was sent by one side."""
    for report in reports:
        assert report.good, (report.trace, report.side, report.error, report.differences[:3])
        assert {one.result for one in report.verdicts} <= {"equal", "free"}
    assert sum(r.packets for r in reports) == sum(len(one.packets) for one in plan.suitable)


@cocotb.test()
@cocotb.parametrize(wide=[True, False])
async def golden(dut, wide):
    """Each capture from both sides agrees in every packet, in memory and in completions.

    wide: those that a beat's width may change, or the others.
    """
    for name in REPLAYED:
        if (name in WIDE) == wide:
            agrees(*await both_sides(dut, GOLDEN / f"{name}.pcap"))


@cocotb.test()
async def golden_of_one_side(dut):
    """A capture that no card can play the one side of: why, and the other side."""
    plan = Plan(GOLDEN / f"{ONE_SIDED}.pcap")
    ((run,), refused), (none, why) = (plan.runs(letter, CONFIG) for letter in "AB")
    assert not refused and not none and "0x80002c0" in why[1]
    assert (await play_run(dut, CONFIG, ONE_SIDED, run)).good


@cocotb.test()
@cocotb.parametrize(wide=[True, False])
async def golden_retries(dut, wide):
    """Captures with losses, duplicates, RNR NAKs and errors agree as well, for the same reasons.

    What timing decides is the same in both cards: there is no free difference of retries.
    wide: as above.
    """
    for name in RETRIED:
        if (name in WIDE) != wide or (name == LONG and CONFIG.width > 64):
            continue
        plan, reports = await both_sides(dut, GOLDEN / f"{name}.pcap")
        agrees(plan, reports)
        free = {what for report in reports for what in report.free}
        assert free <= {"ip identification", "frame padding", "ack coalescing"}, (name, free)


@cocotb.test(skip=QUICK)
async def merged_and_tagged(dut):
    """Many connections of Linux machines at once: tagged, and tagged one way only."""
    for name, vlans in (("tagged", {1: 100, 2: 100}), ("one way", {2: 0})):
        reports = await both_sides(dut, together(name, vlans))
        agrees(*reports)
        assert max(len(report.connections) for report in reports[1]) >= 8
        dut._log.info("%s: %s", name, [report.connections for report in reports[1]])


def together(name, vlans):
    """Golden captures in one, in pcapng; ``vlans``: VLAN of what 10.0.0.1 and 10.0.0.2 send."""
    capture = Capture()
    merged([GOLDEN / f"{one}.pcap" for one in MERGED], capture)
    for at, (time, frame) in enumerate(capture.frames):
        sender = frame[11]  # last byte of the MAC address
        if sender in vlans:
            capture.frames[at] = time, tagged(frame, vlans[sender], priority=sender)
    return capture.save_ng(Path(f"{name}.pcapng").resolve())


@cocotb.test(skip=QUICK)
async def cut_anywhere(dut):
    """A capture that begins or ends at any packet of both directions' messages."""
    whole = Capture()
    talk = Talk(whole, psns=(0xFFFFFC, 0x2000), mtu=256)
    talk.send(0, PATTERN[:700], imm=b"abcd")
    talk.write(1, PATTERN[:600], 0x10003, 0x501)
    talk.read(0, 0x20001, 0x601, PATTERN[:777])
    talk.read(1, 0x10003, 0x501, PATTERN[:512])
    talk.write(0, PATTERN[1:514], 0x20001, 0x601, imm=b"wxyz")
    talk.send(1, b"")
    talk.send(0, PATTERN[5:900])
    frames = whole.frames
    for first, last in [(n, len(frames)) for n in range(3, 22, 4)] + [
        (0, n) for n in range(4, len(frames) - 1, 4)
    ]:
        part = Capture()
        part.frames = frames[first:last]
        plan, reports = await both_sides(dut, part.save(Path("part.pcap").resolve()))
        assert len(plan.suitable) == 1, (first, last, plan.connections[0].reason)
        for report in reports:
            assert report.good, (first, last, report.side, report.error, report.differences)


@cocotb.test()
async def requests_ahead_of_responses(dut):
    """Both machines ask on before their READs are answered, several deep, in one QP."""
    capture = Capture()
    talk = Talk(capture, mtu=256)
    data = [PATTERN[n : n + 300 * n + 1] for n in range(6)]
    begun = []
    for side in (0, 1):
        for n in (1, 2, 3):
            begun.append((side, talk.psns[side], data[n]))
            talk.read(side, 0x1000 * n, 0x600 + 256 * side, data[n], answer=False)
        talk.send(side, data[4], ack=False)
        talk.write(side, data[5], 0x9000, 0x600 + 256 * side, imm=b"last", ack=False)
    for n, (side, psn, part) in enumerate(begun):
        talk.responses(1 - side, psn, part, msn=n % 3 + 1)
    for side in (0, 1):
        talk.ack(side, talk.psns[1 - side] - 1)
    agrees(*await both_sides(dut, capture.save(Path("ahead.pcap").resolve())))


@cocotb.test()
async def more_connections_than_queues(dut):
    """A server with forty clients' QPs: more than the card has CQs."""
    capture = Capture()
    for n in range(40):
        names = (f"10.0.1.{n + 1}", "10.0.0.9")
        talk = Talk(capture, names, qpns=(0x11, 0x100 + 2 + n), psns=(n << 12, n << 13))
        talk.send(0, PATTERN[n : 40 * n], imm=b"%04d" % n)
        talk.write(1, PATTERN[: 30 * n], 0x5000, 0x900)
    plan = Plan(capture.save(Path("server.pcap").resolve()))
    ((run,), refused) = plan.runs("B", CONFIG)
    assert not refused
    assert len(run.places) == 40 > CONFIG.cqs
    report = await play_run(dut, CONFIG, "server", run)
    assert report.good, (report.error, report.differences)


@cocotb.test()
async def what_the_protocol_leaves_free(dut):
    """Other machines' habits: each is taken for what it is, with its name."""
    capture = Capture()
    talk = Talk(capture, mtu=512, udp_source=50_000, hop_limit=3, traffic_class=1, migreq=1)
    talk.send(0, b"one", ack=False)
    talk.send(0, PATTERN[:2000], ack=False)
    talk.write(0, b"three", 0x3000, 0x505, ack=False)
    talk.ack(1, talk.psns[0] - 1)  # one ACK for all
    for value in (PATTERN[:1500], PATTERN[7:1507]):  # the application writes between the READs
        talk.read(0, 0x3000, 0x505, value)
    talk.read(1, 0x4000, 0x606, PATTERN[:600])
    talk.packet(0, Op.SEND_ONLY, talk.psns[0], b"without AckReq")
    talk.ack(1, talk.psns[0], talk.msns[1] + 1)  # nobody has asked
    for at, (time, frame) in enumerate(capture.frames):
        if frame[11] == 2 and at % 2:
            marked = bytearray(frame)
            marked[15] |= 3  # a router has marked it: congestion
            capture.frames[at] = time, reseal(bytes(marked))
    plan, reports = await both_sides(dut, capture.save(Path("free.pcap").resolve()))
    agrees(plan, reports)
    found = {name for report in reports for name in report.free}
    wanted = {"udp source port", "migreq", "ack coalescing", "ack not asked for", "ack request"}
    assert wanted | {"congestion mark"} <= found, found
    assert set(found) <= set(FREE)
    assert reports[1].memory["changed_by_application"] == 5


@cocotb.test(skip=QUICK)
async def mutations(dut):
    """One bit of one packet of each capture is flipped, its ICRC made right: that is noticed.

    Sides, requests and memory are those of the unchanged capture. In turn it is a bit of a packet
    that the card should have sent, and one of the PSN or payload of a packet that is fed in.
    """
    rng = random.Random(11)
    for turn, name in enumerate(REPLAYED):
        await mutated(dut, rng, GOLDEN / f"{name}.pcap", bool(turn % 2))
    path = together("plain", {})
    for turn in range(6):
        await mutated(dut, rng, path, bool(turn % 2))


async def mutated(dut, rng, path, fed):
    """Flip one bit of ``path``, in a packet that is fed or in one that the card should send."""
    plan = Plan(path)
    connection = rng.choice(plan.suitable)
    # A lost ACK is made good by the next, so a changed one that is fed in proves nothing.
    packet = rng.choice([p for p in connection.packets if not fed or noticed(connection, p)])
    side = packet.target if fed else packet.side
    (run,) = [
        run
        for letter in "AB"
        for run in plan.runs(letter, CONFIG)[0]
        for place in run.places
        if place.connection is connection and place.side == side
    ]
    bit = _bit(rng, packet, fed, final(connection, packet))
    changed = bytearray(packet.frame)
    changed[bit // 8] ^= 1 << bit % 8
    packet.frame = reseal(bytes(changed))
    packet.parts = dissect(packet.frame)
    dut._log.info("%s: packet %d, byte %d, fed %s", path.name, packet.number, bit // 8, fed)
    report = await play_run(dut, CONFIG, path.name, run)
    assert not report.good, f"{path.name}: bit {bit} of packet {packet.number} went unnoticed"
    dut._log.info("noticed: %s", report.error or str(report.differences[0]))


def final(connection, packet):
    """Whether its payload stays: that of an earlier packet may be overwritten by a later message to
    the same place. A datagram has a place of its own.
    """
    messages = connection.ends[packet.side].messages
    last = bool(messages) and packet in messages[-1].packets
    return last or packet.service is Transport.UD


def noticed(connection, packet):
    """Whether a change of what is fed shows: a lost ACK is made good by the next, and nothing tells
    of a packet of UC whose data is overwritten.
    """
    if packet.service is Transport.UC:
        return final(connection, packet)
    return packet.op != Op.ACKNOWLEDGE


def _bit(rng, packet, fed, final):
    """A bit of the frame whose change matters."""
    frame = packet.frame
    start = 18 if frame[12:14] == b"\x81\x00" else 14
    v4 = frame[start] >> 4 == 4
    bth = start + (28 if v4 else 48)
    length = (
        int.from_bytes(frame[start + 2 : start + 4], "big")
        if v4
        else (40 + int.from_bytes(frame[start + 4 : start + 6], "big"))
    )
    end = start + length - 4  # where the ICRC is
    payload = end - len(packet.parts.payload) - (-len(packet.parts.payload) % 4)
    # PSN; a beginning of UC may have any; for a datagram that does not matter, but its Q_Key does.
    counts = {
        Transport.RC: range(bth + 9, bth + 12),
        Transport.UC: (),
        Transport.UD: range(bth + 12, bth + 16),
    }[packet.service]
    while True:
        byte = rng.randrange(bth, end)
        bit = rng.randrange(8)
        in_payload = payload <= byte < payload + len(packet.parts.payload)
        if fed and byte not in counts and not (final and in_payload):
            continue
        if not _free(byte - bth, bit, packet):
            return 8 * byte + bit


def _free(byte, bit, packet):
    """MigReq, FECN, BECN and reserved bits, pad count (it breaks the frame's form), AckReq where it
    is the requester's choice, credit code.
    """
    aeth = packet.op in RESPONSES and packet.op != Op.READ_RESP_MIDDLE
    asks = byte == 8 and packet.op not in RESPONSES
    return (byte == 4 or (byte == 8 and bit < 7) or asks or (byte == 1 and bit != 7)) or (
        aeth and byte == 12 and bit < 5
    )
