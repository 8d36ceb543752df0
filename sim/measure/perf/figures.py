"""Figures from captures and samples; nothing here knows the simulation.

A capture's time stamps are those of the first bit of a frame behind its preamble, in ns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hdl.wire.constants import ETHERTYPE_VLAN, ICRC_BYTES, MIN_FRAME, ROCE_PORT, bth_offset
from hdl.wire.headers import BTH, UDP
from hdl.wire.opcodes import ATOMIC_BYTES, ROCE_OPCODES, Kind
from sim.wire.pcap import read_pcap

__all__ = ["Latency", "Rates", "Packets", "data_packets", "quarters", "rates", "stages"]

#: What a frame takes on the line beside its bytes: preamble 8, FCS 4, gap 12.
LINE_OVERHEAD = 24
FCS = 4


@dataclass(frozen=True)
class Packets:
    """Data packets in the order of their time stamps: arrays of one length.

    time: ns. payload: bytes of the message. line: bytes of time on the line. source: last byte of
    the sender's MAC address. qp: number of the QP that gets it.
    """

    time: NDArray[np.int64]
    payload: NDArray[np.int64]
    line: NDArray[np.int64]
    source: NDArray[np.int64]
    qp: NDArray[np.int64]

    def of(self, source: int) -> Packets:
        """Those of one sender."""
        return self._only(self.source == source)

    def between(self, begin: float, end: float) -> Packets:
        """Those with a time stamp from ``begin`` to ``end``, in ns."""
        return self._only((begin <= self.time) & (self.time <= end))

    def _only(self, which: NDArray[np.bool_]) -> Packets:
        return Packets(*(getattr(self, field.name)[which] for field in fields(self)))


@dataclass(frozen=True)
class Rates:
    """Rates in Gb/s of payload; ``limit`` is what the line allows packets of these lengths.

    ``peak`` is the best eighth of the time's packets; ``took`` the time in ns.
    """

    average: float
    peak: float
    limit: float
    took: float


def _data(frame: bytes) -> tuple[int, int]:
    """Bytes of a RoCE v2 frame's payload, or the result of an atomic, and its QP; (0, 0) for any
    other frame."""
    vlan = int.from_bytes(frame[12:14], "big") == ETHERTYPE_VLAN
    start = 18 if vlan else 14
    bth = bth_offset(vlan=vlan, ipv6=frame[start] >> 4 == 6)
    if len(frame) < bth + BTH.size:
        return 0, 0
    udp = UDP.unpack(frame[bth - UDP.size : bth])
    if udp["destination_port"] != ROCE_PORT:
        return 0, 0
    head = BTH.unpack(frame[bth : bth + BTH.size])
    opcode = ROCE_OPCODES.get(head["opcode"])
    if opcode is None:
        return 0, 0
    if opcode.kind is Kind.ATOMIC_RESPONSE:  # what it brings is a header
        return ATOMIC_BYTES, head["dest_qp"]
    other = UDP.size + BTH.size + opcode.extended + ICRC_BYTES
    return udp["length"] - other - head["pad_count"], head["dest_qp"]


def data_packets(path: Path | str) -> Packets:
    """The packets of a capture that carry payload; ValueError when it is no capture."""
    rows = [
        (time, data[0], max(len(frame), MIN_FRAME) + LINE_OVERHEAD, frame[11], data[1])
        for time, frame in read_pcap(path)
        if (data := _data(frame))[0] > 0
    ]
    columns = np.array(rows, np.int64).reshape(-1, 5)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    return Packets(*columns.T)


def rates(packets: Packets, line_gbps: float) -> Rates:
    """Payload over time from the first to the last packet; ValueError for fewer than two.

    A time stamp is the beginning of its packet, so the last one's payload is outside the time.
    """
    if packets.time.size < 2:
        raise ValueError(f"{packets.time.size} data packets are too few for a rate")
    begun = np.concatenate([[0], np.cumsum(packets.payload)])[:-1]
    took = int(packets.time[-1] - packets.time[0])
    step = max(1, packets.time.size // 8)
    spans = packets.time[step:] - packets.time[:-step]
    parts = 8 * (begun[step:] - begun[:-step]) / np.maximum(spans, 1)
    share = packets.payload.sum() / packets.line.sum()
    return Rates(8 * float(begun[-1]) / took, float(parts.max()), line_gbps * float(share), took)


def quarters(packets: Packets) -> list[float]:
    """Rates in Gb/s of payload in each quarter of the time; empty with fewer than eight packets.

    A packet's payload counts when its time stamp is, but the last one's is outside the time.
    """
    if packets.time.size < 8:
        return []
    bounds = np.linspace(packets.time[0], packets.time[-1], 5)
    sums = np.histogram(packets.time[:-1], bounds, weights=packets.payload[:-1])[0]
    return [float(bits) for bits in 8 * sums / np.diff(bounds)]


def stages(
    packets: Packets, messages: Sequence[Sequence[float]], line_gbps: float, delay: float
) -> tuple[list[float], list[float]]:
    """Doorbell at the card to first bit on the line; last bit at the peer to its host write; ns.

    messages: of each its sender, when its doorbell came and when it was written; one after the
    other. delay: of the line. ValueError when one has no packet.
    """
    before, behind = [], []
    for sender, doorbell, written in messages:
        own = packets.of(int(sender) + 1).between(doorbell, written)
        if not own.time.size:
            raise ValueError(f"no packet between {doorbell} and {written} ns")
        data = 8 * (int(own.line[-1]) - LINE_OVERHEAD + FCS) / line_gbps
        before.append(float(own.time[0]) - doorbell)
        behind.append(written - (float(own.time[-1]) + data + delay))
    return before, behind


@dataclass(frozen=True)
class Latency:
    """Statistics of samples in ns, as perftest makes them."""

    min: float
    max: float
    typical: float
    average: float
    deviation: float
    p99: float
    p999: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Latency:
        """``typical`` is the median; percentiles by nearest rank. ValueError without samples."""
        if not samples:
            raise ValueError("No samples of latency")
        ordered = sorted(samples)

        def rank(share: float) -> float:
            return ordered[max(1, math.ceil(share * len(ordered))) - 1]

        values = np.array(ordered)
        return cls(
            ordered[0],
            ordered[-1],
            rank(0.5),
            float(values.mean()),
            float(values.std()),
            rank(0.99),
            rank(0.999),
        )
