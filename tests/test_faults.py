"""The list of deliberate faults fits the sources, and the script tells caught from missed."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.rtl.env import REPO
from tests.fault_list import INTEROP
from tests.faults import FAULTS, FaultError, check, faults, live, markdown, workshop

BY_NAME = {one.name: one for one in FAULTS}
#: Fails within seconds, in Amaranth's simulator.
CHEAP = replace(
    BY_NAME["psn-plus-1"],
    tests=("tests/transport/test_send.py::test_message_is_cut_into_packets[2-0-operations0]",),
)


def test_names_differ() -> None:
    assert len(BY_NAME) == len(FAULTS) >= 15


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fits_the_source(fault) -> None:
    source = (REPO / fault.place).read_text()
    compile(fault.apply(source), fault.place, "exec")
    if fault.force is not None:  # the class and its signal are there; elaboration tells the rest
        part = inspect.getsource(fault.force.find())
        assert re.search(rf"\b{fault.force.signal.split('.')[0]}\b", part)
    for test in (*fault.tests, INTEROP):
        assert (REPO / test.partition("::")[0]).exists()


def test_text_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ValueError, match="Fault psn-plus-1: .* hdl/transport/request_headers.py, not 0"
    ):
        CHEAP.apply("")


def test_documented() -> None:
    assert markdown() in (REPO / "docs" / "testing.md").read_text()


def test_one_fault_from_end_to_end() -> None:
    """Caught; a change that does no harm is missed; one that cannot be run is neither."""
    source = (REPO / CHEAP.file).read_text()
    with workshop() as shop:
        assert check(shop, CHEAP).caught
        assert Path(shop.folder, CHEAP.file).read_text() == source
        assert not check(shop, replace(CHEAP, new=CHEAP.old + "  # harmless")).caught
        other = "tests/sim/test_cli.py::test_help_names_every_command"
        outcome = check(shop, replace(CHEAP, tests=(*CHEAP.tests, other)))  # each must fail
        assert outcome.by and outcome.unmoved == (other,) and not outcome.caught
        with pytest.raises(FaultError, match="no test failed properly"):
            check(shop, replace(CHEAP, new="header.psn.eq(nothing),"))
        assert (REPO / CHEAP.file).read_text() == source
        assert check(shop, BY_NAME["drain-before-fronts"]).caught  # one that names a signal


def test_command() -> None:
    run = CliRunner().invoke
    assert run(faults, ["--list"]).output == markdown()
    assert {one.name for one in live()} == {
        "msn-not-advanced",
        "pkey-wrong",
        "data-byte-wrong",
        "icrc-wrong",
    }
    unknown = run(faults, ["--interop", "psn-plus-1"])
    assert unknown.exit_code == 2 and "No fault that --interop tries is called" in unknown.output
    unknown = run(faults, ["nothing"])
    assert unknown.exit_code == 2 and "'nothing'" in unknown.output


@pytest.mark.slow
def test_all_faults_are_caught() -> None:
    with workshop() as shop:
        missed = [fault.name for fault in FAULTS if not check(shop, fault).caught]
    assert not missed
