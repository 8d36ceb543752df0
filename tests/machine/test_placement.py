"""FLUSH and ATOMIC WRITE by rdma-core's own tests, in a Debian 13 guest. A boot: slow."""

from __future__ import annotations

import re

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
