"""``perf`` on two whole NICs: its figures against those that scapy finds in the captures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sim.bench.cards import FEATURES
from sim.measure.perf.command import measure
from sim.measure.perf.plan import MANY, Plan
from sim.rtl.build import run
from sim.wire.packets import Dissected, dissect
from sim.wire.pcap import read_pcap
from tests.nic.test_nic import model

#: On the card that many simulations have, not on one of its own.
ON = {"card": FEATURES}
BANDWIDTH: list[dict[str, Any]] = [
    {"op": "write_bw", "sizes": (64, 5000), "qps": 3, "inline": 64},
    {"op": "send_bw", "sizes": (1, 3000), "bidirectional": True},
    {"op": "read_bw", "sizes": (100, 9000), "qps": 2, "mtu": 1024},
    {"op": "write_bw", "sizes": (64, 5000), "qps": 2, "connection": "UC"},
    {"op": "send_bw", "sizes": (1, 3000), "qps": 2, "connection": "UD", "bidirectional": True},
    {"op": "send_bw", "sizes": (1, 3000), "qps": 3, "use_srq": True},
    {"op": "send_bw", "sizes": (64,), "qps": 6, "connection": "XRC", "use_srq": True, **ON},
    {"op": "send_bw", "sizes": (1, 3000), "qps": 2, "connection": "XRC", **ON},
    {"op": "send_bw", "sizes": (64,), "connection": "DC", "targets": 2, **ON},
    {"op": "write_bw", "sizes": (64, 3000), "qps": 2, "connection": "DC", **ON},
    {"op": "send_bw", "sizes": (1, 3000), "qps": 2, "mp_wr": True, **ON},
    {"op": "write_bw", "sizes": (3000,), "qps": 2, "mkey": 7, **ON},
    {"op": "flush_bw", "sizes": (64, 5000), "qps": 2, **ON},
    {"op": "atomic_write_bw", "sizes": (8,), "qps": 3, "bidirectional": True, **ON},
]
#: Of these, what takes longest, and what is as the others but for the queue or the opcode; all are
#: sent in other tests too.
LONG = [one for one in BANDWIDTH if {"targets", "mp_wr", "use_srq"} & one.keys()]
LONG += [one for one in BANDWIDTH if one.get("connection") == "UC" or one["op"] == "flush_bw"]


def _named(options: dict[str, Any]) -> str:
    service = options.get("connection", "") + "srq" * options.get("use_srq", False)
    service += "-targets" * ("targets" in options)
    service += "mp_wr" * options.get("mp_wr", False) + "mkey" * ("mkey" in options)
    return "-".join(filter(None, (options["op"], service)))


ITERS = 40  # more than what is outstanding: else the timed part may hold no packet
FEW = {"tx_depth": 16, "cq_mod": 4, "post_list": 5, "iters": ITERS}
LATENCY = ["write_lat", "send_lat", "read_lat", "flush_lat", "atomic_write_lat"]
#: SEND, WRITE, READ response: FIRST and ONLY; ATOMIC WRITE.
FIRST = {0x00, 0x04, 0x06, 0x0A, 0x0D, 0x10, 0x1D, 0xA0, 0xA4, 0xC4, 0xC6, 0xCA}


#: Headers that the dissector does not know, and takes for payload: FETH and RETH; RETH; XRCETH of
#: each SEND, and AETH of its answer; of DC RETH, AETH, and what opens and closes connections.
UNKNOWN = {0x1C: 20, 0x1D: 16, **dict.fromkeys((0xA0, 0xA1, 0xA2, 0xA4, 0xB1), 4)}
UNKNOWN |= {0xC6: 16, 0xCA: 16, 0xD1: 4, 0xD8: 28, 0xD9: 20, 0xDA: 16, 0xDB: 16}


def moved(packet: Dissected) -> int:
    """Bytes of a message that a packet has."""
    return len(packet.payload) - UNKNOWN.get(packet.fields["opcode"], 0)


def packets(path: Path) -> list[tuple[int, int, Dissected]]:
    """Time, length of the frame and contents of all packets with payload."""
    found = [(time, len(frame), dissect(frame)) for time, frame in read_pcap(path)]
    assert all(packet.icrc_good for _, _, packet in found)
    return [each for each in found if moved(each[2]) > 0]


def direction(found: Sequence[tuple[int, int, Dissected]]) -> tuple[float, float]:
    """Gb/s of payload, and what a line of 100 Gb/s would allow."""
    payload = [moved(packet) for _, _, packet in found]
    line = sum(max(84, length + 24) for _, length, _ in found)
    took = found[-1][0] - found[0][0]
    return 8 * sum(payload[:-1]) / took, 100 * sum(payload) / line


def _both(chosen: Sequence[Any], wide: Sequence[Any]) -> Any:
    """Each of ``chosen`` with both widths; slow are long ones, and at 512 bits all but those of
    ``wide``: there the figures themselves are measured (tests/measure/perf/test_figure.py)."""
    slow = {"marks": pytest.mark.slow}
    name = _named if isinstance(chosen[0], dict) else str
    return [
        pytest.param(one, width, id=f"{name(one)}-{width}", **({} if usual else slow))
        for one in chosen
        for width, usual in ((64, one not in LONG), (512, one in wide))
    ]


@pytest.mark.parametrize("options, width", _both(BANDWIDTH, BANDWIDTH[:1]))
def test_bandwidth(width: int, options: dict[str, Any], tmp_path: Path) -> None:
    plan = Plan(width=width, **options, **FEW)
    rows = measure(plan, tmp_path / "x.pcap", apart=True)
    assert [row.json["size"] for row in rows] == list(plan.sizes)
    for row in rows:
        facts, size = row.json, row.json["size"]
        found = packets(tmp_path / f"x-{size}-{plan.qps}.pcap")
        senders = {packet.fields["src_mac"] for _, _, packet in found}
        assert len(senders) == 1 + plan.bidirectional
        parts = [direction([p for p in found if p[2].fields["src_mac"] == s]) for s in senders]
        gbps, limit = (sum(part[i] for part in parts) for i in (0, 1))
        assert facts["gbps"] == pytest.approx(gbps)
        assert facts["wire_limit_gbps"] == pytest.approx(limit)
        assert facts["ratio"] == pytest.approx(gbps / limit) and 0 < facts["ratio"] <= 1.0002
        assert facts["mmsg_s"] == pytest.approx(1000 * gbps / (8 * size))
        flows = plan.qps * (1 + plan.bidirectional)
        shape = plan.shape(size)
        assert facts["bytes_verified"] >= (shape.warm + ITERS) * flows * size
        assert facts["bytes_verified"] % size == 0
        # What was timed is what was captured.
        assert row.iterations >= ITERS * flows
        took = facts["cycles"] * 4
        assert found[-1][0] - found[0][0] <= took + 2000
        assert sum(moved(p) for _, _, p in found) <= (row.iterations + 16 * flows) * size
        # Little's law: what is outstanding over the rate.
        waits = 1000 * 16 * flows / facts["mmsg_s"]
        assert 0 < facts["latency_ns"]["min"] <= facts["latency_ns"]["p50"] <= 1.5 * waits
        if plan.verb != "read":
            assert facts["host_writes_per_msg"] >= max(1, size / 256)
        if size > plan.inline:
            assert facts["host_reads_per_msg"] >= max(1, size / 512)


def test_parts_that_are_busy(tmp_path: Path) -> None:
    """The sender's card works, and the requester of the other one has nothing to send."""
    plan = Plan(op="write_bw", sizes=(64,), qps=3, width=64, busy=True, **FEW)
    (row,) = measure(plan)
    found = {
        (one["card"], one["part"], one.get("machine") or one.get("stream") or one["level"]): one
        for one in row.json["busy"]
    }
    for one in found.values():
        shares = one.get("states") or {name: one.get(name, 0) for name in ("moves", "waits")}
        whole = sum(shares.values()) + one.get("empty", 0)
        assert whole == pytest.approx(1) or "level" in one
    turns = [found[card, "transport.requester", "turn"]["states"] for card in (0, 1)]
    assert 0 < turns[0]["BUSY"] < 1 and turns[1] == {"IDLE": 1.0}
    jobs = [found[card, "transport.requester", "job"]["moves"] for card in (0, 1)]
    rate = row.iterations / row.json["cycles"]
    assert jobs[0] == pytest.approx(rate, abs=0.05) and jobs[1] == 0


@pytest.mark.parametrize("op", [pytest.param("write_bw", marks=pytest.mark.slow), "read_bw"])
def test_translations_that_always_miss(op: str, tmp_path: Path) -> None:
    """Each costs both sides a host read; of three QPs one misses, as the capture says."""
    options: dict[str, Any] = {"op": op, "sizes": (64,), "qps": 3} | FEW
    # Some 90 reads of the usual run's timed part are for messages that end behind it: 0.08 for each
    # of these messages, but 0.7 with ``ITERS``.
    reads = [
        measure(Plan(**options | {"iters": 400}, miss_qps=missing))[0].json["host_reads_per_msg"]
        for missing in (0, 3)
    ]
    assert reads[1] - reads[0] == pytest.approx(2, abs=0.1)
    (row,) = measure(Plan(**options | {"iters": 96}, miss_qps=1), tmp_path / "x.pcap")
    found = packets(tmp_path / "x.pcap")
    numbers = Counter(packet.fields["dest_qp"] for _, _, packet in found)
    took = found[-1][0] - found[0][0]
    missing = numbers[min(numbers)] / took * 1000
    assert len(numbers) == 3
    assert row.json["mmsg_s_each"]["missing"] == pytest.approx(missing, rel=0.03)
    known = (len(found) - numbers[min(numbers)]) / took * 500
    assert row.json["mmsg_s_each"]["known"] == pytest.approx(known, rel=0.03)


@pytest.mark.slow
def test_misses_of_a_qp_hold_up_no_other() -> None:
    """One of eight QPs whose targets always miss: the others are as fast as without it.

    It has as many WQEs outstanding as they have, and each one takes a host read longer, so it may
    be a little slower itself. It begins behind the others, by some 40 messages or by 300, as the
    moments have it at which the QPs begin; so many messages are timed that this does not count.
    Nothing is lost in all.
    """
    options: dict[str, Any] = {"op": "write_bw", "sizes": (48,), "inline": 48, "qps": 8}
    (usual,) = measure(Plan(**options, iters=8192))
    (row,) = measure(Plan(**options, iters=8192, miss_qps=1))
    each, fair = row.json["mmsg_s_each"], usual.json["mmsg_s"] / 8
    assert each["known"] >= 0.98 * fair and each["missing"] >= 0.9 * fair, (each, fair)
    assert 7 * each["known"] + each["missing"] >= 0.99 * usual.json["mmsg_s"], (each, fair)


@pytest.mark.parametrize("op, width", _both(LATENCY, ["send_lat"]))
def test_latency(width: int, op: str, tmp_path: Path) -> None:
    """Messages follow each other at the latency that was measured at the hosts."""
    sizes = (8,) if op == "atomic_write_lat" else (2, 5000)
    on = ON if Plan(op=op, sizes=sizes).kind.card else {}
    plan = Plan(op=op, sizes=sizes, width=width, iters=6, **on)
    for row in measure(plan, tmp_path / "x.pcap", apart=True):
        facts, size = row.json, row.json["size"]
        found = packets(tmp_path / f"x-{size}-1.pcap")
        begun = [time for time, _, packet in found if packet.fields["opcode"] in FIRST]
        flows = 1 if plan.kind.told else 2
        assert len(begun) == 6 * flows == row.iterations
        # All messages but the last one, whichever that was.
        span, total = begun[-1] - begun[0], row.latency.average * len(begun)
        assert total - row.latency.max <= 1.03 * span
        assert total - row.latency.min >= 0.97 * span
        assert 1000 < facts["latency_ns"]["min"] <= facts["latency_ns"]["max"] < 50_000
        assert facts["bytes_verified"] == (6 + 10) * flows * size


@pytest.mark.slow
def test_as_many_queue_pairs_as_there_can_be(tmp_path: Path) -> None:
    """4 KiB WRITEs over 16382 QPs in turn: 95 % of what one QP reaches."""
    (one,) = measure(Plan(op="write_bw", sizes=(4096,)))
    plan = Plan(op="write_bw", sizes=(4096,), qps=MANY["qps"] - 2, iters=1)
    (many,) = measure(plan, tmp_path / "x.pcap")
    assert many.json["gbps"] >= 0.95 * one.json["gbps"]
    assert many.json["bytes_verified"] >= 3 * plan.qps * 4096
    numbers = Counter(packet.fields["dest_qp"] for _, _, packet in packets(tmp_path / "x.pcap"))
    assert len(numbers) >= 0.85 * plan.qps and max(numbers.values()) <= 2


def test_stall_and_wrong_byte() -> None:
    run(model(64), test_module="tests.measure.perf.bench_perf", extra_env={"ROCINANTE_WIDTH": "64"})
