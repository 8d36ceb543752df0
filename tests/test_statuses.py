"""Every status that the card can put into a completion is shown by a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from hdl.abi.enums import WcStatus
from sim.bench import coverage
from tests.testplan import ROOT, missing_tests

NIC = "tests/nic/bench_"
#: Status -> tests of the whole card in which a completion has it.
SHOWN: dict[WcStatus, tuple[str, ...]] = {
    WcStatus.SUCCESS: (f"{NIC}nic.py::local_errors",),
    WcStatus.LOC_LEN_ERR: (
        f"{NIC}nic.py::receive_errors",
        f"{NIC}services.py::datagrams_that_do_not_go",
    ),
    WcStatus.LOC_QP_OP_ERR: (f"{NIC}nic.py::local_errors", f"{NIC}services.py::uc_is_no_rc"),
    WcStatus.LOC_PROT_ERR: (f"{NIC}nic.py::local_errors", f"{NIC}nic.py::receive_errors"),
    WcStatus.WR_FLUSH_ERR: (f"{NIC}nic.py::modify_to_error_flushes",),
    WcStatus.GENERAL_ERR: (f"{NIC}services.py::payload_that_cannot_be_read",),
    WcStatus.MW_BIND_ERR: (f"{NIC}fast_regions.py::what_is_refused",),
    WcStatus.BAD_RESP_ERR: (f"{NIC}statuses.py::bad_responses",),
    WcStatus.REM_INV_REQ_ERR: (
        f"{NIC}statuses.py::fatal_answers",
        f"{NIC}fast_regions.py::what_is_refused",
    ),
    WcStatus.REM_ACCESS_ERR: (f"{NIC}nic.py::remote_errors",),
    WcStatus.REM_OP_ERR: (f"{NIC}statuses.py::fatal_answers", f"{NIC}nic.py::receive_errors"),
    WcStatus.RETRY_EXC_ERR: (f"{NIC}loss.py::dead_peer",),
    WcStatus.RNR_RETRY_EXC_ERR: (f"{NIC}loss.py::late_receiver",),
}
#: A status that the gateware names, to give it to a completion or to compare one with it.
NAMED = re.compile(r"WcStatus\.([A-Z][A-Z_]*)")


def functions(path: Path) -> dict[str, str]:
    """The source of each function at the top of a file."""
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: ast.unparse(node) for node in tree.body if isinstance(node, kinds)}


def test_every_status_of_the_gateware_is_shown() -> None:
    sources = (path.read_text() for path in (ROOT / "hdl").rglob("*.py"))
    named = {name for source in sources for name in NAMED.findall(source)}
    assert named == {status.name for status in SHOWN}
    assert set(SHOWN) == set(WcStatus) - coverage.NEVER


def test_the_tests_exist() -> None:
    assert not missing_tests(test for tests in SHOWN.values() for test in tests)


@pytest.mark.parametrize("status", SHOWN, ids=lambda status: status.name)
def test_the_tests_name_the_status(status: WcStatus) -> None:
    for test in SHOWN[status]:
        file, _, name = test.partition("::")
        assert f"WcStatus.{status.name}" in functions(ROOT / file)[name], test
