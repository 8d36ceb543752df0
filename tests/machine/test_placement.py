"""FLUSH and ATOMIC WRITE in Debian 13 guests, by rdma-core's own tests and with a peer. A boot
each: slow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.debian import run

pytestmark = pytest.mark.slow

SUITE = ("python3", "/usr/lib/rdma-core/tests/run_tests.py", "-v", "--dev", "rocinante0")
#: Cases of test_qpex; the last one asks for a placement that its region does not allow.
CASES = ("rc_atomic_write", "rc_flush", "rc_flush_type_violate")


@pytest.fixture(scope="module")
def ran():
    words = ("--release", "13", "--with", "placement", "--timeout", "900")
    _, err = run(*words, *SUITE, *(word for case in CASES for word in ("-k", case)))
    return err


@pytest.mark.parametrize("case", CASES)
def test_case_passes(ran, case):
    assert re.search(rf"^test_qp_ex_{case} .*\.\.\. ok$", ran, re.M), ran


@pytest.mark.parametrize("peer, device", [("card", "rocinante0"), ("soft-roce", "rxe0")])
def test_both_ways_with_a_peer(peer, device):
    """T-P11: all of it with another guest's card, ATOMIC WRITE with Linux' Soft-RoCE."""
    ask = ("python3", "-c", Path(__file__).with_name("placed.py").read_text())
    words = ("--release", "13", "--with", "placement", "--peer", peer)
    out, _ = run(*words, *ask, "rocinante0", "::", *ask, device, "server")
    assert out.count("placed and found") == 2
