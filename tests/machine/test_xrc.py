"""Extended reliable connections between a guest's cards, by programs of Debian. A boot: slow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.debian import run, sections

pytestmark = pytest.mark.slow

SCRIPT = "".join(Path(__file__).with_name(name).read_text() for name in ("pair.sh", "xrc.sh"))
#: What shows that each of them has done it.
SHOWS = {
    "xsrq_pingpong": r"^server: success$",
    "xsrq_pingpong_events": r"^server: success$",
    "ib_send_bw": r"^ 4096 +20 ",
}


@pytest.fixture(scope="module")
def ran():
    out, _ = run("--with", "xrc", "--timeout", "900", "--cards", "2", "bash", "-c", SCRIPT)
    return sections(out)


def test_device_has_it(ran):
    assert len(re.findall(r"^\s+XRC$", ran["devices"], re.M)) == 2, ran["devices"]


@pytest.mark.parametrize("program", SHOWS)
def test_both_sides_end_well(ran, program):
    text = ran[program]
    assert f"status {program} 0 0\n" in text, text
    assert re.search(SHOWS[program], text, re.M), text
