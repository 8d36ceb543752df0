"""Functional coverage: its bins, what is counted, how records are merged and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl.abi.enums import ControlCommand, QpType, SendFlags, WcOpcode, WcStatus, WrOpcode
from hdl.wire.constants import NAK_REMOTE_ACCESS
from hdl.wire.opcodes import Transport
from sim.bench.coverage import Coverage, bins, load, request_bin, rows
from sim.guest.verbs.wr import SGE, WC, SendWR
from sim.models.native import LinkPackets
from sim.tools import cli


def test_bins_differ_and_cover_every_request_of_each_service() -> None:
    found = bins()
    assert len(found) == len(set(found)) > 500
    kinds = {one[0] for one in found}
    assert kinds == {"request", "command", "completion", "packet", "answer", "drop"}
    services = {(one[1], one[2]) for one in found if one[0] == "request"}
    assert {("RC", "RDMA_READ"), ("UC", "RDMA_WRITE"), ("UD", "SEND_WITH_IMM")} <= services
    assert ("UD", "RDMA_WRITE") not in services and ("UC", "RDMA_READ") not in services


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (SendWR(), ("0", "-", "-", "-")),
        (SendWR(sg=[SGE(0x1000, 4096, 1)]), ("257-4096", "64 B", "1 SGE", "page")),
        (SendWR(sg=[SGE(0x1040, 4096, 1)]), ("257-4096", "64 B", "1 SGE", "pages")),
        (SendWR(sg=[SGE(1, 1, 1), SGE(0, 0, 1)]), ("1-256", "any byte", "1 SGE", "page")),
        (SendWR(sg=[SGE(0, 99_999, 1)] * 5), ("65536-", "64 B", "5- SGEs", "pages")),
        (
            SendWR(send_flags=SendFlags.INLINE, inline_data=b"x" * 9),
            ("1-256", "-", "inline", "-"),
        ),
    ],
)
def test_bin_of_a_request(request_: SendWR, expected: tuple[str, ...]) -> None:
    found = request_bin(Transport.RC, request_)
    assert found == ("request", "RC", "SEND", *expected)
    assert found in bins()


def test_what_is_seen_is_a_bin_and_is_missed_without(tmp_path: Path) -> None:
    seen = Coverage()
    seen.posted(QpType.RC, SendWR(opcode=WrOpcode.RDMA_READ, sg=[SGE(0, 64, 1)]))
    seen.posted(QpType.RC, SendWR(opcode=99))
    seen.commanded(ControlCommand.CREATE_CQ, 0)
    seen.commanded(ControlCommand.CREATE_CQ, 7)
    seen.completed(WC(1, WcStatus.SUCCESS, WcOpcode.RECV))
    seen.completed(WC(1, WcStatus.WR_FLUSH_ERR, 0))
    seen.counted({"rx_drops_icrc": 3, "bad_qkey": 0, "rx_packets": 9})
    packets = LinkPackets()
    packets.opcodes[Transport.RC << 5 | 0x11] = 3
    packets.syndromes[0x1F], packets.syndromes[NAK_REMOTE_ACCESS], packets.syndromes[0x2C] = 1, 1, 1
    seen.sent(packets)
    assert len(seen.seen) == 10 and set(seen.seen) <= set(bins())
    seen.save(tmp_path / "one.json")
    twice = load([tmp_path / "one.json"] * 2)
    assert twice == seen.seen + seen.seen
    lacking = {one for _, _, missing in rows(twice) for one in missing}
    assert lacking == set(bins()) - set(seen.seen)
    assert ("drop", "bad_qkey") in lacking


def test_nothing_seen_leaves_no_record(tmp_path: Path) -> None:
    Coverage().save(tmp_path / "one.json")
    assert not (tmp_path / "one.json").exists()


def test_command_merges_and_says_what_is_missing(tmp_path: Path) -> None:
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text(json.dumps([["answer", "ACK", 5]]))
    two.write_text(json.dumps([["answer", "ACK", 1], ["answer", "RNR NAK", 1]]))
    run = CliRunner().invoke
    shown = run(cli.rocinante, ["coverage", "--missing", str(one), str(two)])
    assert shown.exit_code == 0 and "Coverage of 2 simulations" in shown.output
    assert "not seen: answer, NAK sequence" in shown.output
    assert "not seen: answer, ACK" not in shown.output
    facts = json.loads(run(cli.rocinante, ["coverage", "--json", "-", str(one)]).output)
    (answers,) = [row for row in facts["rows"] if row["what"] == "answers"]
    assert answers["bins"] == 6 and ["answer", "RNR NAK"] in answers["missing"]


def test_what_is_no_record_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}x")
    result = CliRunner().invoke(cli.rocinante, ["coverage", str(bad)])
    assert result.exit_code == 1 and f"{bad} is no record of a simulation" in result.output
