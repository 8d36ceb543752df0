"""Rates from captures made by hand, and statistics of samples."""

from __future__ import annotations

import pytest

from sim.measure.perf.figures import Latency, data_packets, quarters, rates
from sim.wire.packets import build
from sim.wire.pcap import write_pcap

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, ACK = 0x0C, 0x0D, 0x0E, 0x0F, 0x11


def mac(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))


def test_rate_of_a_full_line(tmp_path) -> None:
    """4096 bytes in frames of 4166 + 12 bytes that begin as densely as 100 Gb/s allows."""
    frame = build(WRITE_MIDDLE, payload=bytes(4096))
    line = len(frame) + 24
    assert len(frame) == 14 + 20 + 8 + 12 + 4096 + 4
    write_pcap(tmp_path / "x.pcap", [(round(i * line * 0.08), frame) for i in range(1001)])
    packets = data_packets(tmp_path / "x.pcap")
    assert set(packets.payload) == {4096} and set(packets.line) == {line}
    seen = rates(packets, 100)
    assert seen.limit == pytest.approx(100 * 4096 / line)
    assert seen.average == pytest.approx(seen.limit, rel=1e-5)
    assert seen.peak == pytest.approx(seen.limit, rel=1e-4)
    assert seen.took == round(1000 * line * 0.08)
    assert rates(packets, 25).limit == pytest.approx(seen.limit / 4)


def test_half_the_time_nothing(tmp_path) -> None:
    """A pause in the middle halves the average, not the peak."""
    frame = build(WRITE_ONLY, payload=bytes(1000), va=0, rkey=0, dma_length=1000)
    times = [100 * i for i in range(100)] + [100 * i for i in range(199, 299)]
    write_pcap(tmp_path / "x.pcap", [(time, frame) for time in times])
    seen = rates(data_packets(tmp_path / "x.pcap"), 100)
    assert seen.average == pytest.approx(8 * 199 * 1000 / 29800)
    assert seen.peak == pytest.approx(80)


def test_quarters(tmp_path) -> None:
    """Half of the time at full rate, then half of it: each quarter for itself."""
    frame = build(WRITE_ONLY, payload=bytes(1000), va=0, rkey=0, dma_length=1000)
    times = [100 * i for i in range(100)] + [10_000 + 200 * i for i in range(51)]
    write_pcap(tmp_path / "x.pcap", [(time, frame) for time in times])
    packets = data_packets(tmp_path / "x.pcap")
    assert quarters(packets) == pytest.approx([80, 80, 40, 40])
    assert quarters(packets.between(0, 600)) == []  # seven packets


def test_only_payload_counts(tmp_path) -> None:
    """Requests, ACKs and other traffic carry none; padding is none."""
    frames = [
        build(READ_REQUEST, va=0, rkey=0, dma_length=9000),
        build(ACK, syndrome=0, msn=1),
        bytes(60),
        build(READ_FIRST, payload=bytes(1024), syndrome=0, msn=1),
        build(READ_MIDDLE, payload=bytes(1024)),
        build(READ_LAST, payload=bytes(5), syndrome=0, msn=1, dest_qp=9),
        build(WRITE_LAST, payload=bytes(1), src_mac=mac(2)),
        build(WRITE_FIRST, payload=bytes(256), vlan=5, va=0, rkey=0, dma_length=300),
        build(
            WRITE_FIRST,
            payload=bytes(512),
            src_gid=bytes(15) + b"\1",
            dst_gid=bytes(15) + b"\2",
            va=0,
            rkey=0,
            dma_length=600,
        ),
    ]
    write_pcap(tmp_path / "x.pcap", list(enumerate(frames)))
    packets = data_packets(tmp_path / "x.pcap")
    assert packets.payload.tolist() == [1024, 1024, 5, 1, 256, 512]
    assert packets.time.tolist() == [3, 4, 5, 6, 7, 8]
    assert packets.line.tolist() == [len(f) + 24 for f in frames[3:]]
    assert packets.line[3] == 62 + 24  # one byte and its padding: RoCE frames with data are longer
    assert packets.qp.tolist() == [0, 0, 9, 0, 0, 0]
    assert packets.of(2).payload.tolist() == [1]
    assert packets.of(1).payload.size == 5


def test_too_little_for_a_rate(tmp_path) -> None:
    write_pcap(tmp_path / "x.pcap", [(5, build(WRITE_LAST, payload=b"abc"))])
    with pytest.raises(ValueError, match="1 data packets are too few"):
        rates(data_packets(tmp_path / "x.pcap"), 100)


def test_latency_as_perftest_makes_it() -> None:
    samples = [float(n) for n in range(1000, 0, -1)]
    seen = Latency.of(samples)
    assert (seen.min, seen.max, seen.typical) == (1, 1000, 500)
    assert (seen.p99, seen.p999, seen.average) == (990, 999, 500.5)
    assert seen.deviation == pytest.approx(288.675, abs=1e-3)
    one = Latency.of([7.0])
    assert (one.min, one.typical, one.p99, one.p999, one.max, one.deviation) == (7, 7, 7, 7, 7, 0)
    with pytest.raises(ValueError, match="No samples"):
        Latency.of([])
