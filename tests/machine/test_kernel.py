"""Users of the card in the kernel itself: what they do, no program can. All boot machines: slow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.debian import run, sections, sides_of

pytestmark = pytest.mark.slow

RDS = Path(__file__).with_name("rds.py").read_text()
NVME = Path(__file__).with_name("nvme.sh").read_text()
#: A loaded machine needs longer than the other guests' commands may take.
PATIENT = ("--timeout", "1200")
#: Counters that are 0 on a good wire.
LOST = ("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err")
BLOCKS = ["32 of 4096", "8 of 131072", "1 of 1048576", "16 of 65536"]


def counted(err: str, card: int, name: str) -> int:
    """A counter of a card, 0 if it has told none."""
    (line,) = re.findall(rf"^card {card}: (.*)$", err, re.M)
    return int(dict(re.findall(r"(\w+) (\d+)", line)).get(name, 0))


def is_fine(log: str) -> bool:
    """Whether no kernel has complained."""
    return not re.search(r"WARNING:|BUG:|failed|error|timeout|reset", log)


@pytest.mark.parametrize(
    "options",
    [(), ("--impair", "loss=1%,seed=1"), ("--release", "13")],
    ids=["wire", "loss", "debian_13"],
)
def test_nvme_between_two_guests(options):
    """A disk of one guest is the other one's: each byte comes back, and is where it belongs.

    Fast registration, invalidation by the peer and by itself, kernel CQs, drained queue pairs.
    """
    sides = ("bash", "-c", f"{NVME}\ntarget", "::", "bash", "-c", f"{NVME}\ninitiator 10.0.0.1")
    out, err = run(*PATIENT, "--peer", "card", *options, *sides)
    target, initiator = (sections(text) for text in sides_of(out))
    assert "subnqn:  nqn.2026-01.example:disk" in initiator["discover"], out
    assert re.findall(r"^(.*): the same$", initiator["data"], re.M) == BLOCKS, out
    assert re.fullmatch(r"[0-9a-f]{64} .*\n", initiator["hash"]), out
    assert target["disk"] == initiator["hash"], out
    assert "disconnected 1 controller" in initiator["disconnect"], out
    assert "Removing ctrl" in initiator["log"] and is_fine(initiator["log"]), out
    assert "creating nvm controller" in target["log"] and is_fine(target["log"]), out
    assert counted(err, 1, "rx_read_requests") > 20 and counted(err, 1, "rx_write_requests") > 60
    lost = sum(counted(err, card, name) for card in (0, 1) for name in LOST)
    assert (lost > 0) == ("--impair" in options), err


def test_rds_between_two_guests():
    """Datagrams of the kernel's own transport: one receive queue, one CQ for all processes."""
    sides = ("python3", "-c", RDS, "::", "python3", "-c", RDS, "10.0.0.1")
    out, err = run(*PATIENT, "--peer", "card", *sides)
    _, asked = sides_of(out)
    lengths = [1, 63, 4096, 4097, 30_000, 65_536, 200_000]
    assert re.findall(r"^(\d+) bytes: the same$", asked, re.M) == [str(one) for one in lengths], out
    assert "all at once: the same" in asked and len(re.findall(r"^ping \d: ", asked, re.M)) == 5
    assert counted(err, 0, "rx_send_requests") > 100, err
