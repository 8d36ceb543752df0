"""The trace from its registers to the capture; the registers are Python's."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import pytest
from scapy.utils import RawPcapNgReader

from firmware.daemon.trace import capture
from firmware.device import HardwareError
from firmware.pcapng import Interface, Packet, pcapng
from firmware.tracer import TracedFrame, Tracer
from hdl.config import TRACE_BYTES
from hdl.ports.counter_names import COUNTER_TEXTS, DROP_REASONS
from sim.rtl.env import REPO
from sim.wire.pcap import read_capture
from tests.firmware.test_daemon import START_S, Card
from tests.firmware.test_registers import CONFIG, FakeBus

FRAMES = 4
TRACED = replace(CONFIG, trace_frames=FRAMES)


@dataclass
class Slot:
    """A frame in the card."""

    time: int
    octets: bytes
    length: int
    reason: int = 0
    error: int = 0


class TracedBus(FakeBus):
    """Registers of a card with a trace: ``rings`` hold sent and received frames by slot."""

    def __init__(self, *place):
        self.rings = [{}, {}]
        self.control = []
        self.now = 5
        super().__init__(*place, config=TRACED)

    def state(self, received, place, full):
        name = ("sent", "received")[received]
        self.values |= {f"trace.{name}.next": place, f"trace.{name}.full": full}

    async def write(self, addr, value):
        name, item, _ = self.places[addr]
        if (name, item.name) == ("trace", "control"):
            self.control += [
                one for one, set in self.map.decode("trace.control", value).items() if set
            ]
            self.values["trace.status.running"] = int(self.control[-1] == "start")
            return
        await super().write(addr, value)

    async def read(self, addr):
        name, item, word = self.places.get(addr, (None, None, None))  # None: nothing answers there
        if name != "trace" or item.name not in (
            "time_low",
            "time_high",
            "facts",
            "data",
            "now_low",
        ):
            return await super().read(addr)
        if item.name == "now_low":
            return self.now & 0xFFFFFFFF
        ring = self.rings[self.values["trace.select.received"]]
        slot = ring[self.values["trace.select.frame"]]
        if item.name == "data":
            return int.from_bytes(
                slot.octets.ljust(TRACE_BYTES, b"\xee")[4 * word : 4 * word + 4], "little"
            )
        if item.name == "facts":
            facts = {"length": slot.length, "reason": slot.reason, "error": slot.error}
            return self.map.encode("trace.facts", **facts)
        return slot.time >> 32 if item.name == "time_high" else slot.time & 0xFFFFFFFF


def run(what):
    return asyncio.run(what)


def test_a_card_without_a_trace():
    with pytest.raises(HardwareError, match="The card has no trace"):
        Tracer(FakeBus(), CONFIG)


def test_start_and_stop():
    bus = TracedBus()
    tracer = Tracer(bus, TRACED)
    run(tracer.start(snap=60, stop_at=(DROP_REASONS[0], DROP_REASONS[16])))
    assert bus.control == ["start"] and run(tracer.running())
    assert bus.values["trace.snap.value"] == 60
    assert bus.values["trace.stop_reasons.value"] == 1 | 1 << 16
    run(tracer.stop())
    assert bus.control == ["start", "stop"] and not run(tracer.running())
    assert not run(tracer.dropped())
    with pytest.raises(ValueError, match="0 to 128 bytes of a frame, not 129"):
        run(tracer.start(snap=129))
    with pytest.raises(ValueError, match="No frame is dropped for 'rx_packets'"):
        run(tracer.start(stop_at=("rx_packets",)))


def test_frames_in_the_order_of_their_times():
    """Of a full ring, the slot that comes next may be half of another frame."""
    bus = TracedBus()
    bus.values["trace.snap.value"] = 64
    bus.rings[0] = {n: Slot(10 + n, bytes([n]) * 70, 70) for n in range(3)}
    bus.rings[1] = {n: Slot((1 << 40) + n, bytes([n]) * 9, 9, n, n & 1) for n in range(FRAMES)}
    bus.rings[1][0].time = 11
    bus.state(0, 2, 0)
    bus.state(1, 2, 1)
    frames = run(Tracer(bus, TRACED).frames())
    assert frames == [
        TracedFrame(10, False, bytes([0]) * 64, 70),
        TracedFrame(11, False, bytes([1]) * 64, 70),
        TracedFrame(11, True, bytes(9), 9),
        TracedFrame((1 << 40) + 1, True, bytes([1]) * 9, 9, DROP_REASONS[0], True),
        TracedFrame((1 << 40) + 3, True, bytes([3]) * 9, 9, DROP_REASONS[2], True),
    ]


def test_time_that_passes_a_border():
    bus = TracedBus()
    tracer = Tracer(bus, TRACED)
    highs = iter([1, 2, 2, 2])

    async def read(name, word=0):
        return next(highs) if name == "now_high" else 7

    tracer._read = read
    assert run(tracer.now()) == 2 << 32 | 7


def opened(path):
    """(block, comment, ...) of each packet, as scapy reads the file, and its interfaces."""
    with RawPcapNgReader(str(path)) as reader:
        return list(reader), reader.interfaces


def test_capture(tmp_path):
    """Read by scapy and by this project's own reader."""
    frames = [
        TracedFrame(1_000, False, b"a" * 60, 60),
        TracedFrame(2_000, True, b"b" * 128, 1500, "rx_drops_icrc"),
        TracedFrame(3_000, False, b"c" * 61, 61, "", True),
    ]
    path = tmp_path / "a.pcapng"
    epoch = 1_700_000_000 * 10**9
    path.write_bytes(capture(frames, card="0.1.0 abc", now=3_000, time_ns=epoch, hz=250_000_000))
    records = read_capture(path)
    assert [(one.time, one.frame, one.length) for one in records] == [
        (epoch - 8_000, b"a" * 60, 60),
        (epoch - 4_000, b"b" * 128, 1500),
        (epoch, b"c" * 61, 61),
    ]
    packets, interfaces = opened(path)
    assert [one[0] for one in packets] == [b"a" * 60, b"b" * 128, b"c" * 61]
    facts = [one[1] for one in packets]
    assert [(one.ifname, one.direction) for one in facts] == [(b"tx", 2), (b"rx", 1), (b"tx", 2)]
    text = COUNTER_TEXTS["rx_drops_icrc"].removeprefix("dropped: ")
    comments = [b"".join(one.comments or ()) for one in facts]
    assert comments[0] == b"" and comments[1] == f"dropped, rx_drops_icrc: {text}".encode()
    assert comments[2].startswith(b"sent as a bad frame")
    assert [one[1] for one in interfaces] == [TRACE_BYTES] * 2


def test_lengths_that_are_no_words(tmp_path):
    path = tmp_path / "a.pcapng"
    for size in range(9):
        packet = Packet(0, 1, b"x" * size, size, comment="y" * size)
        path.write_bytes(pcapng("a" * size, [Interface("i" * (size + 1))], [packet]))
        ((octets, facts),), _ = opened(path)
        assert octets == b"x" * size and (facts.comments or [b""])[0] == b"y" * size
        assert [one.frame for one in read_capture(path)] == [b"x" * size]


class TracedCard(TracedBus, Card):
    """... and on a socket, for a process."""


def trace(*options):
    return subprocess.Popen(
        [sys.executable, "-m", "sim.tools.cli", "trace", *map(str, options)],
        cwd=REPO, env=os.environ | {"PYTHONPATH": str(REPO)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_process(tmp_path):
    card, file = TracedCard(tmp_path / "bar"), tmp_path / "a.pcapng"
    card.rings[1] = {0: Slot(3, b"z" * 20, 20, 17)}
    card.state(1, 1, 0)
    command = ("--bar", f"unix:{card.path}", "-o", file, "--stop-at", "icrc,rx_drops_mac")
    process = trace(*command)
    ends = time.monotonic() + START_S
    while not card.values.get("trace.status.running"):
        assert time.monotonic() < ends and process.poll() is None
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=START_S)
    assert (process.returncode, err) == (0, "") and "1 frames, 1 of them dropped" in out
    assert card.control == ["start", "stop"]
    assert card.values["trace.stop_reasons.value"] == 1 << 16 | 1 << 2
    (record,) = read_capture(file)
    assert record.frame == b"z" * 20


@pytest.mark.parametrize(
    ("options", "status", "why"),
    [
        (("--bar", "x"), 2, "-o is needed"),
        (("--bar", "x", "-o", "y", "--snap", "129"), 2, "must be 0 to 128, not '129'"),
        (("--bar", "x", "-o", "y", "--stop-at", "luck"), 2, "no frame is dropped for 'luck'"),
        (("--bar", "/nowhere", "-o", "y"), 1, "/nowhere: No such file"),
    ],
)
def test_bad_options(options, status, why):
    command = [sys.executable, "-m", "firmware.daemon.trace", *options]
    ended = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert ended.returncode == status and why in " ".join(ended.stderr.split())
