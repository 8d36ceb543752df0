"""Comparing two sides: what is right passes, and each kind of fault is noticed."""

import pytest

from sim.tools.interop import traffic
from sim.tools.interop.parties import Connection, ConnectionOptions
from sim.tools.interop.scenarios import SCENARIOS
from sim.tools.interop.traffic import OPERATIONS, Message, Mismatch, Tally, exchange
from tests.interop.fabric import Fabric

MESSAGES = [
    Message(opcode, size, source)
    for opcode in OPERATIONS
    for size in (0, 1, 300)
    for source in (0, 1)
]


def run(fabric: Fabric, messages=None) -> Tally:
    tally = Tally()
    connection = Connection.open(fabric.parties, ConnectionOptions())
    exchange([connection], messages or MESSAGES, seed=1, tally=tally)
    return tally


def test_what_is_right_passes() -> None:
    tally = run(Fabric())
    assert (tally.messages, tally.bytes_verified) == (30, 10 * 301)


@pytest.mark.parametrize("name", ["send-imm", "eight-qps-ipv6", "psn-wrap", "read-ipv4", "loss"])
def test_scenarios_are_right_on_a_right_fabric(name: str) -> None:
    tally = Tally()
    for scenario in SCENARIOS.values():
        if scenario.name.startswith(name):
            scenario.run(Fabric().parties, tally)
            assert tally.messages


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_a_wrong_byte_is_noticed(opcode: str) -> None:
    fabric = Fabric()
    fabric.spoil_data = lambda data: data[:-1] + bytes([data[-1] ^ 1]) if data else data
    with pytest.raises(Mismatch, match=f"{opcode} of 300 bytes on QP 0: byte 299 differs"):
        run(fabric, [Message(opcode, 300, 0)])


def test_a_byte_beside_the_message_is_noticed() -> None:
    fabric = Fabric()
    fabric.spoil_data = lambda data: data + b"x" if data else data
    with pytest.raises(Mismatch, match="outside the messages"):
        run(fabric, [Message("RDMA_WRITE", 300, 0)])


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("status", "LOC_PROT_ERR", "ended with LOC_PROT_ERR"),
        ("byte_len", 299, "byte_len is 299, not 300"),
        ("imm", 1, "imm is 1"),
        ("flags", [], "flags is"),
        ("wr_id", 1, "wr_id is 1, not 0"),
        ("qp_num", 99, "nothing asked for"),
    ],
)
def test_a_wrong_completion_is_noticed(name: str, value: object, message: str) -> None:
    fabric = Fabric()
    fabric.spoil_completion = lambda wc: {**wc, name: value}
    with pytest.raises(Mismatch, match=message):
        run(fabric, [Message("SEND_WITH_IMM", 300, 0), Message("SEND_WITH_IMM", 300, 0)])


def test_a_missing_completion_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    fabric.spoil_completion = lambda wc: None if wc["opcode"] == "RECV" else wc
    monkeypatch.setattr(traffic, "_PATIENCE", 0.1)
    with pytest.raises(Mismatch, match="0 of 1 completions"):
        run(fabric, [Message("SEND", 300, 0)])
