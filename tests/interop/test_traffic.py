"""Comparing two sides: what is right passes, and each kind of fault is noticed."""

import contextlib

import pytest

from sim.interop import shared, traffic
from sim.interop.connecting import Program, connected
from sim.interop.operations import OPERATIONS, Message, of_type
from sim.interop.parties import Connection, ConnectionOptions, Party
from sim.interop.scenarios import SCENARIOS
from sim.interop.traffic import Mismatch, Tally, exchange
from tests.interop.fabric import Fabric

MESSAGES = [
    Message(opcode, size, source)
    for opcode in OPERATIONS
    for size in (0, 1, 300)
    for source in (0, 1)
]


def run(fabric: Fabric, messages=None, kind: str = "RC") -> Tally:
    tally = Tally()
    connection = Connection.open(fabric.parties, ConnectionOptions(kind=kind))
    exchange([connection], messages or MESSAGES, seed=1, tally=tally)
    return tally


def test_what_is_right_passes() -> None:
    tally = run(Fabric())
    assert (tally.messages, tally.bytes_verified) == (42, 10 * 301 + 12 * 8)


def test_operations_of_the_types() -> None:
    """As in IBTA vol 1, table 38 and section 9.8."""
    assert set(of_type("RC")) == set(OPERATIONS)
    assert set(of_type("UC")) == set(of_type("RC")) - {
        "RDMA_READ",
        "ATOMIC_CMP_AND_SWP",
        "ATOMIC_FETCH_AND_ADD",
    }
    assert of_type("UD") == ["SEND", "SEND_WITH_IMM"]


@pytest.mark.parametrize(
    "name",
    ["send-with-imm", "eight-qps-ipv6", "psn-wrap", "read-ipv4", "loss", "atomic", "uc-", "ud-",
     "srq", "invalidate"],
)  # fmt: skip
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
    size = OPERATIONS[opcode].size or 300
    wrong = f"{opcode} of {size} bytes on QP 0: byte {size - 1} differs"
    with pytest.raises(Mismatch, match=wrong):
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


@pytest.mark.parametrize("place", [32, 39])
def test_a_wrong_grh_is_noticed(place: int) -> None:
    def spoil(grh: bytes) -> bytes:
        changed = bytearray(grh)
        changed[place] ^= 0x40
        return bytes(changed)

    messages = [Message("SEND", 300, source) for source in (0, 1)]
    run(Fabric(), messages, "UD")
    fabric = Fabric()
    fabric.spoil_grh = spoil
    with pytest.raises(Mismatch, match="GRH"):
        run(fabric, messages, "UD")


@pytest.mark.parametrize("name, value", [("flags", []), ("src_qp", 77), ("byte_len", 300)])
def test_a_wrong_completion_of_a_datagram_is_noticed(name: str, value: object) -> None:
    fabric = Fabric()
    fabric.spoil_completion = lambda wc: {**wc, name: value} if wc["opcode"] == "RECV" else wc
    with pytest.raises(Mismatch, match=f"{name} is"):
        run(fabric, [Message("SEND", 300, 0)], "UD")


def test_an_atomic_that_is_not_executed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.interop.fabric.atomic", lambda opcode, before, **_: before)
    for opcode in ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"):
        messages = [Message(opcode, 8, source) for source in (0, 1) for _ in range(8)]
        with pytest.raises(Mismatch, match=f"{opcode} of 8 bytes on QP 0: byte . differs"):
            run(Fabric(), messages)


def test_a_key_that_lives_on_is_noticed() -> None:
    fabric = Fabric()
    fabric.invalidates = lambda: False
    with pytest.raises(Mismatch, match="status is SUCCESS, not REM_ACCESS_ERR"):
        SCENARIOS["invalidate"].run(fabric.parties, Tally())


def test_a_wrong_byte_in_a_shared_receive_queue_is_noticed() -> None:
    fabric = Fabric()
    fabric.spoil_data = lambda data: data[:-1] + bytes([data[-1] ^ 1]) if data else data
    with pytest.raises(Mismatch, match="a buffer of the shared receive queue differs"):
        shared.shared_receives(fabric.parties, Tally())


@pytest.mark.parametrize(
    "spoil, wrong",
    [
        (lambda number: number ^ 1, "a buffer of the shared receive queue differs"),
        (lambda number: number & ~1, "message 1 of"),
    ],
)
def test_a_wrong_buffer_of_a_shared_receive_queue_is_noticed(spoil, wrong: str) -> None:
    fabric = Fabric()
    fabric.spoil_completion = lambda wc: (
        {**wc, "wr_id": spoil(wc["wr_id"])} if wc["opcode"] == "RECV" else wc
    )
    with pytest.raises(Mismatch, match=wrong):
        shared.shared_receives(fabric.parties, Tally())


def test_a_missing_completion_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    fabric.spoil_completion = lambda wc: None if wc["opcode"] == "RECV" else wc
    monkeypatch.setattr(traffic, "_PATIENCE", 0.1)
    with pytest.raises(Mismatch, match="0 of 1 completions"):
        run(fabric, [Message("SEND", 300, 0)])


@pytest.mark.parametrize(
    "status, said, wrong",
    [(0, "done", ""), (1, "done", "ended with status 1"), (0, "no", "ended with status 0:\nno")],
)
def test_a_program_that_fails_is_noticed(status: int, said: str, wrong: str) -> None:
    answers = {
        "info": {"mac": "02:00:00:00:00:01", "gids": ["::ffff:10.0.0.1"]},
        "reg_mr": {"mr": 0, "addr": 0, "rkey": 0},
        "create_qp": {"qp": 0, "qpn": 2},
        "run": {"program": 0},
        "finish": {"status": status, "data": said.encode().hex()},
    }

    class Client:
        def call(self, op: str, **_: object) -> dict:
            return answers.get(op, {})

    program = Program("name", "", "true", 1, lambda card, port: None, done="done")
    parties = (Party("one", Client()), Party("other", Client()))
    with pytest.raises(Mismatch, match=wrong) if wrong else contextlib.nullcontext():
        connected(parties, Tally(), program=program)
