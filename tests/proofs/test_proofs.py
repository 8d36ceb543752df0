"""Every property holds, and every proof fails when its component is broken."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from hdl.common import crc
from tests.force import Force, ForceError, applied, stuck

from .catalogue import PROOFS, prove, refute, run

every = pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.name)


@every
def test_holds(proof) -> None:
    verdict = run(proof)
    assert verdict.holds, f"{proof.says} It does not in cycle {verdict.cycle}."


@every
def test_fails_when_the_component_is_broken(proof) -> None:
    assert not refute(proof).holds


@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_crc_folds_are_the_definition(size) -> None:
    """The folds are matrices: what they make of each single bit of a beat is all that they do."""
    steps = crc._data_steps(size)
    for bit in range(8 * size):
        ones = {8 * size - 1 - bit}  # the last bit is the first of the vector
        for rows in steps:
            ones = {n for n, row in enumerate(rows) if len(ones & set(row)) & 1}
        register = 0
        for at in range(8 * size):  # IEEE 802.3, 3.2.9, bit by bit
            wrong = (register ^ (at == bit)) & 1
            register = register >> 1 ^ (crc.POLYNOMIAL if wrong else 0)
        assert ones == {n for n in range(32) if register >> n & 1}


def test_names_differ() -> None:
    assert len({one.name for one in PROOFS}) == len(PROOFS)


def test_command() -> None:
    run_command = CliRunner().invoke
    assert "skid" in run_command(prove, ["--list"]).output
    assert run_command(prove, ["skid"]).exit_code == 0
    assert run_command(prove, ["--broken", "skid"]).exit_code == 0
    unknown = run_command(prove, ["nothing"])
    assert unknown.exit_code == 2 and "'nothing'" in unknown.output


def test_a_force_names_what_is_not_there() -> None:
    with (
        pytest.raises(ForceError, match="no component"),
        applied(Force("hdl.no:No", "i", stuck(0))),
    ):
        pass
    with (
        pytest.raises(ForceError, match=r"hdl.common.skid:Skid has no signal nothing"),
        applied(Force("hdl.common.skid:Skid", "nothing", stuck(0))),
    ):
        run(PROOFS[0])
