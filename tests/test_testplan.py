"""The test plan names each requirement once, and tests that exist."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testplan import (
    IDENTIFIERS,
    PARTS,
    STATES,
    Requirement,
    faults,
    missing_tests,
    plan,
    tables,
)

REQUIREMENTS = plan()


def test_each_requirement_is_there_once() -> None:
    """TOML refuses a second table of the same name."""
    assert [one.name for one in REQUIREMENTS] == IDENTIFIERS.read_text().split()
    for one in REQUIREMENTS:
        assert sum(one.name.startswith(start) for start in PARTS) == 1, one.name


def test_a_requirement_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('["E-1"]\nwhat = "a"\nstate = "not built"\n' * 2)
    with pytest.raises(tomllib.TOMLDecodeError):
        plan(path)


def test_states_fit_the_tests() -> None:
    assert not faults(REQUIREMENTS)


def test_each_test_exists() -> None:
    assert not missing_tests(test for one in REQUIREMENTS for test in one.tests)


def test_a_wrong_plan_is_noticed() -> None:
    good = Requirement("E-1", "what", "tested", ("tests/test_config.py::test_frozen",))
    assert not faults([good])
    assert faults([replace(good, state="done")]) == ["E-1: no state 'done'"]
    assert faults([replace(good, state="not built")]) == ["E-1: 1 tests, but it is not built"]
    assert faults([replace(good, tests=())]) == ["E-1: 0 tests, but it is tested"]
    assert faults([replace(good, tests=good.tests * 2)]) == [f"E-1: {good.tests[0]} twice"]
    names = (
        "tests/test_config.py::test_frozen",
        "tests/test_config.py::test_shares",
        "tests/test_config.py::test_shares[1]",
        "tests/test_config.py::test_shares[9]",
        "tests/test_config.py::test_none",
        "tests/test_none.py::test_none",
        "tests/nic/bench_nic.py::cq_overflow",
        "tests/nic/bench_nic.py::broken",
        "tests/nic/bench_none.py::none",
    )
    there = {names[0], names[1], names[6]}
    assert set(missing_tests(names)) >= set(names) - there - {names[2]}
    assert not there & set(missing_tests(names))


def test_tables_have_each_requirement() -> None:
    text = tables()
    for one in REQUIREMENTS:
        assert f"\n| {one.name} | {one.what}." in text
    counts = {state: sum(one.state == state for one in REQUIREMENTS) for state in STATES}
    assert all(f"| {count} |" in text for count in counts.values())
