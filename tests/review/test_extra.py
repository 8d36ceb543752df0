"""What a review is given beside the tree: the JSON of other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from boards.devices import DEVICES
from sim.review.command import review
from sim.review.extra import GIVEN, fits, read, tried
from tests.browser import document

COST = {"lut": 87126, "ff": 91393, "bram": 466.5, "uram": 55, "dsp": 0}


def synth(**more: float) -> dict[str, Any]:
    part = {"name": "nic", "resources": COST | more}
    return {"family": "xcup", "config": {"width": 512, "qps": 1024}, "parts": [part]}


def test_a_card_fits_where_there_is_enough_of_everything() -> None:
    found = {one["board"]: one for one in fits(synth())["devices"]}
    assert list(found) == [device.board for device in DEVICES if device.family == "xcup"]
    assert found["u55c"]["fits"] and not found["zcu106"]["fits"]
    assert found["zcu106"]["shares"]["bram"] == round(466.5 / 312, 3)
    fitting = {one["board"]: one["fits"] for one in fits(synth(bram=312))["devices"]}
    assert fitting == {"u55c": True, "zcu106": True}


def test_parts_add_up() -> None:
    facts = synth()
    facts["parts"] *= 2
    assert fits(facts)["cost"] == {name: 2 * value for name, value in COST.items()}


MUTANTS = {
    f"memory {count} 1": [
        {"mutant": {"number": number, "cell": "a.b"}, "result": result}
        for number, result in enumerate(["caught"] * (count - 2) + ["equivalent", "survived"])
    ]
    for count in (5,)
}


def test_mutants_that_are_no_faults_do_not_count() -> None:
    found = tried(MUTANTS)
    counts = {"tried": 5, "caught": 3, "equivalent": 1, "survived": 1, "share": 0.75}
    assert found["rooms"] == {"memory": counts}
    assert [one["mutant"]["number"] for one in found["survivors"]] == [4]


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("text", ["{", "[1]", '"a"', '{"family": 1}'])
def test_another_file_is_refused(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="is no JSON of"):
        read({name: file})


def test_page_shows_what_it_is_given(tmp_path: Path) -> None:
    coverage = {"what": "commands", "bins": 4, "missing": [["command", "CREATE_QP", "ERROR"]]}
    command = {"what": "CREATE_QP", "us": 1.5, "rate": 666_667, "reads": 2.0, "writes": 3.0}
    given = {
        "cost": synth(),
        "coverage": {"simulations": 7, "rows": [coverage]},
        "mutants": MUTANTS,
        "commands": [command],
    }
    options = []
    for name, facts in given.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(facts))
        options += [f"--{name}", str(file)]
    done = CliRunner().invoke(review, [*options, "-o", str(tmp_path / "site")])
    assert done.exit_code == 0, done.output
    shown = document(tmp_path / "site/index.html", tmp_path)
    for text in ("149.5% of 312", "command CREATE_QP ERROR", "666,667", "Of 7 simulations"):
        assert text in shown
    assert "Not measured for this page" not in shown
    assert shown.count('<figure class="sequence">') == 6
    assert "The stages of one message: RDMA WRITE, 64 B" in shown
    assert '<figure class="roofline">' in shown
    found = json.loads((tmp_path / "site/review.json").read_text())["facts"]["measured"]
    assert found["mutants"]["rooms"]["memory"]["share"] == 0.75
