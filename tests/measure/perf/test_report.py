"""Rows of figures and how they are printed; the command around them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.measure.perf import command
from sim.measure.perf.figures import data_packets
from sim.measure.perf.plan import Plan
from sim.measure.perf.report import Row, body, footer, header, make_row, unsteady
from sim.tools import cli
from sim.wire.packets import build
from sim.wire.pcap import write_pcap

KEYS = [
    "op",
    "size",
    "mtu",
    "qps",
    "gbps",
    "wire_limit_gbps",
    "ratio",
    "mmsg_s",
    "quarters_gbps",
    "latency_ns",
    "cycles",
    "bytes_verified",
    "host_reads_per_msg",
    "host_writes_per_msg",
    "sim_cycles_per_s",
]
PLAN = Plan(op="write_bw", sizes=(64,))


def capture(path: Path, gap_ns: int = 100, both: bool = False) -> Path:
    """64-byte WRITEs ``gap_ns`` apart; ``both``: the peer sends half as often."""
    head = {"va": 0, "rkey": 0, "dma_length": 64, "payload": bytes(64)}
    one, other = (build(0x0A, src_mac=bytes((2, 0, 0, 0, 0, i)), **head) for i in (1, 2))
    frames = [(gap_ns * i, one) for i in range(101)]
    if both:
        frames += [(gap_ns * i + 7, other) for i in range(0, 101, 2)]
    write_pcap(path, sorted(frames))
    return path


def found(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "size": 64,
        "pcap": str(path),
        "samples": [1000.0, 3000.0, 2000.0],
        "messages": 100,
        "cycles": 2600,
        "skipped": 100,
        "seconds": 0.5,
        "host_reads": 350,
        "host_writes": 125,
        "bytes_verified": 6464,
    } | more


def test_row_has_exactly_these_keys(tmp_path: Path) -> None:
    row = make_row(PLAN, found(capture(tmp_path / "x.pcap")))
    assert list(row.json) == KEYS
    assert list(row.json["latency_ns"]) == ["min", "p50", "p99", "max"]
    assert row.json["gbps"] == pytest.approx(5.12)
    assert row.json["wire_limit_gbps"] == pytest.approx(100 * 64 / 162)
    assert row.json["ratio"] == pytest.approx(5.12 / (100 * 64 / 162))
    assert row.json["mmsg_s"] == pytest.approx(10)
    assert row.json["latency_ns"] == {"min": 1000, "p50": 2000, "p99": 3000, "max": 3000}
    assert (row.json["host_reads_per_msg"], row.json["host_writes_per_msg"]) == (3.5, 1.25)
    assert (row.json["cycles"], row.json["sim_cycles_per_s"]) == (2600, 5000)
    assert row.json["bytes_verified"] == 6464


def test_quarters_that_differ_are_told(tmp_path: Path) -> None:
    row = make_row(PLAN, found(capture(tmp_path / "x.pcap")))
    assert row.json["quarters_gbps"] == pytest.approx([5.12] * 4, rel=0.03)
    assert unsteady(row) == ""
    slower = replace(row, json=row.json | {"quarters_gbps": [21.0, 16.0, 10.5, 10.2]})
    assert "64 B: the quarters of the run differ by 74.9 % (21.00, 16.00, 10.50, 10.20" in unsteady(
        slower
    )
    few = make_row(replace(PLAN, op="write_lat"), found(capture(tmp_path / "x.pcap")))
    assert few.json["quarters_gbps"] == [] and unsteady(few) == ""


def test_directions_are_added(tmp_path: Path) -> None:
    row = make_row(
        replace(PLAN, bidirectional=True), found(capture(tmp_path / "x.pcap", both=True))
    )
    assert row.json["gbps"] == pytest.approx(5.12 + 2.56)
    assert row.json["wire_limit_gbps"] == pytest.approx(2 * 100 * 64 / 162)


def test_qps_that_miss_are_told_apart(tmp_path: Path) -> None:
    """QP 0 of the peer has every packet of ``capture`` that goes there."""
    plan = replace(PLAN, qps=4, miss_qps=1, bidirectional=True)
    path = capture(tmp_path / "x.pcap", both=True)
    row = make_row(plan, found(path, missing=[[1, 0], [0, 7]]))
    # 10 and 5 million/s over 10 us: of 8 flows two miss, of which one has sent nothing.
    each = row.json["mmsg_s_each"]
    assert each["known"] == pytest.approx(10 / 6, rel=1e-3)
    assert each["missing"] == pytest.approx(5 / 2, rel=1e-3)
    text = "\n".join(footer(plan, [row]))
    assert "64 B, a QP whose translations are missing: 2.4983 million/s" in text
    row = make_row(replace(PLAN, miss_qps=1), found(capture(path), missing=[[0, 0]]))
    assert row.json["mmsg_s_each"] == {"missing": pytest.approx(10)}


def test_printed_as_perftest_prints(tmp_path: Path) -> None:
    row = make_row(PLAN, found(capture(tmp_path / "x.pcap")))
    lines = [*header(PLAN), *body(PLAN, [row]), *footer(PLAN, [row])]
    text = "\n".join(lines)
    assert "RDMA_Write BW Test" in text
    for line in (
        " Number of qps   : 1",
        " Mtu             : 4096[B]",
        " TX depth        : 128",
        " CQ Moderation   : 16",
    ):
        assert line in lines
    columns = next(line for line in lines if line.startswith(" #bytes"))
    assert columns.split()[:2] == ["#bytes", "#iterations"]
    assert "BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]" in columns
    values = lines[lines.index(columns) + 1]
    assert values.split() == ["64", "100", "5.120", "5.120", "10.000000", "39.506", "12.96"]
    for title, value in (("BW peak", "5.120"), ("MsgRate", "10.000000"), ("wire", "39.506")):
        assert columns.index(title) == values.index(value, columns.index(title))
    assert "6,464 bytes verified" in text and "5,000 a second" in text


def test_stages_of_a_write(tmp_path: Path) -> None:
    """Doorbell to line, line to host; the frame takes its own bytes and FCS on the line."""
    plan = Plan(op="write_lat", sizes=(64,))
    path = capture(tmp_path / "x.pcap", gap_ns=1000)
    times = data_packets(path).time
    took = 8 * (int(data_packets(path).line[0]) - 24 + 4) / 100
    stages = [[0, times[n] - 30, times[n] + took + 100 + 40] for n in range(3)]
    row = make_row(plan, found(path, stages=stages, line_delay_ns=100))
    assert list(row.json) == [*KEYS, "doorbell_to_wire_ns", "wire_to_host_ns"]
    assert row.json["doorbell_to_wire_ns"]["p50"] == pytest.approx(30)
    assert row.json["wire_to_host_ns"]["max"] == pytest.approx(40)
    text = "\n".join(footer(plan, [row]))
    assert "first bit on the line: 30 ns, 8 cycles" in text
    with pytest.raises(ValueError, match="no packet"):
        make_row(plan, found(path, stages=[[1, 0, 1]], line_delay_ns=100))


def test_the_busiest_part_comes_first(tmp_path: Path) -> None:
    """Of each card: machines by the states in which they work, streams by who waits."""
    plan = replace(PLAN, busy=True)
    states = {"SEND": 0.5, "IDLE": 0.25, "READ": 0.25}
    parts = [
        {"card": 1, "part": "b", "machine": "turn", "rest": "IDLE", "states": {"IDLE": 1.0}},
        {"card": 0, "part": "b", "stream": "o", "moves": 0.2, "waits": 0.3, "empty": 0.5},
        {"card": 0, "part": "a.c", "machine": "turn", "rest": "IDLE", "states": states},
        {"card": 0, "part": "d", "stream": "o", "moves": 0.9, "waits": 0.0, "empty": 0.1},
        {"card": 0, "part": "e", "level": "level", "mean": 3.0, "most": 4, "start": 0},
    ]
    row = make_row(plan, found(capture(tmp_path / "x.pcap"), busy=parts))
    assert row.json["busy"] == parts
    assert list(footer(plan, [row]))[-3:] == [
        " card  busy  part",
        "    0   75%  a.c: turn: SEND 50%, READ 25%",
        "    0   50%  b: o waits 30%",
    ]


def test_latency_columns(tmp_path: Path) -> None:
    plan = Plan(op="send_lat", sizes=(64,))
    row = make_row(plan, found(capture(tmp_path / "x.pcap")))
    assert any("Send Latency Test" in line for line in header(plan))
    columns, values = body(plan, [row])
    assert columns.split()[2:9] == [
        "t_min[usec]",
        "t_max[usec]",
        "t_typical[usec]",
        "t_avg[usec]",
        "t_stdev[usec]",
        "99%[usec]",
        "99.9%[usec]",
    ]
    assert values.split()[2:9] == ["1.000", "3.000", "2.000", "2.000", "0.816", "3.000", "3.000"]


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.rocinante, ["perf", *arguments])
    return result.exit_code, result.output


def test_bad_input_is_one_line_and_status_2() -> None:
    for arguments, text in (
        (("write_bx",), "not 'write_bx'"),
        (("write_bw", "-s", "9000000"), "--size must be 1 to 8388608"),
        (("write_bw", "--mtu", "9000"), "--mtu must be one of"),
        (("write_bw", "-a", "--plots", "/nonexistent"), "is no folder"),
        (("write_lat", "-b"), "--bidirectional is for bandwidth"),
        (("write_bw", "-a", "-q", "4", "--miss-qps", "1"), "--size with --miss-qps must be"),
        (("read_bw", "-a", "--place-step", "64"), "--place-step must be"),
    ):
        status, output = call(*arguments)
        assert status == 2 and text in output and output.count("\n") == 1, output


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Plan]:
    """Instead of simulations, the same capture each time; the plans that were asked for."""
    seen: list[Plan] = []
    path = capture(tmp_path / "x.pcap")

    def measure(plan: Plan, pcap: Path | None = None, *, apart: bool = False) -> list[Row]:
        seen.append(plan)
        return [make_row(plan, found(path, size=size)) for size in plan.sizes]

    monkeypatch.setattr(command, "measure", measure)
    return seen


def test_nothing_in_the_timed_part_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_pcap(tmp_path / "x.pcap", [])
    monkeypatch.setattr("sim.bench.testbench.build", lambda **_: None)
    monkeypatch.setattr(command, "run_plans", lambda *_: [found(tmp_path / "x.pcap")])
    status, output = call("write_bw", "-s", "64", "-n", "1")
    assert status == 1
    last = output.splitlines()[-1]
    assert last == "Error: 0 data packets are too few for a rate: more --iters are needed"


def test_one_row_is_an_object(canned: list[Plan], tmp_path: Path) -> None:
    status, _ = call("write_bw", "-s", "64", "-q", "3", "--json", str(tmp_path / "x.json"))
    assert status == 0 and canned == [replace(PLAN, qps=3)]
    row = json.loads((tmp_path / "x.json").read_text())
    assert list(row) == KEYS and row["qps"] == 3


def test_all_is_a_list_and_draws(canned: list[Plan], tmp_path: Path) -> None:
    arguments = ("--json", str(tmp_path / "x.json"), "--plots", str(tmp_path))
    status, _ = call("read_bw", "--all", *arguments)
    assert status == 0
    rows = json.loads((tmp_path / "x.json").read_text())
    assert [(row["size"], row["qps"]) for row in rows] == [
        (size, plan.qps) for plan in canned for size in plan.sizes
    ]
    assert len(rows) == len({(row["size"], row["qps"]) for row in rows}) == 20 + 6
    for name in ("size.png", "size.svg", "qps.png", "qps.svg"):
        assert (tmp_path / f"perf-read_bw-{name}").stat().st_size > 10_000
    assert "goodput (Gb/s)" in (tmp_path / "perf-read_bw-size.svg").read_text()
    status, _ = call("send_lat", "--all", *arguments)
    assert status == 0 and len(json.loads((tmp_path / "x.json").read_text())) == 20
    assert (tmp_path / "perf-send_lat-size.png").exists()
    assert not (tmp_path / "perf-send_lat-qps.png").exists()


def test_messages_count_once_on_a_bad_network(tmp_path: Path) -> None:
    """The capture has 101 packets in 10,100 ns; 50 messages came of them, in 12,800 ns."""
    plan = replace(PLAN, impair="loss=50%")
    path = capture(tmp_path / "x.pcap")
    row = make_row(plan, found(path, messages=50, ns=12_800, frames=150, gone=60))
    assert row.json["gbps"] == pytest.approx(2) and row.json["mmsg_s"] == pytest.approx(3.90625)
    assert (row.json["frames"], row.json["lost"]) == (150, 60)
    assert any("60 of 150 frames were lost" in line for line in footer(plan, [row]))
    assert any("loss=50%" in line for line in header(plan))
