"""Programs of rdma-core that connect by the connection manager, between two cards. A boot: slow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machine.debian import run, sections

pytestmark = pytest.mark.slow

SCRIPT = "".join(
    Path(__file__).with_name(name).read_text() for name in ("pair.sh", "connections.sh")
)
#: What shows that each of them has done it.
SHOWS = {
    "ucmatose": r"^data transfers complete$",
    "udaddy": r"^data transfers complete$",
    "cmtime": r"^connect +: ",
    "rdma_server": r"^server: rdma_server: end 0$",
    "mckey": r"^server: receiving data transfers$",
}


@pytest.fixture(scope="module")
def ran():
    out, _ = run("--timeout", "900", "--cards", "2", "bash", "-c", SCRIPT)
    return sections(out)


@pytest.mark.parametrize("program", SHOWS)
def test_both_sides_end_well(ran, program):
    text = ran[program]
    server = 143 if program == "cmtime" else 0  # it is ended
    assert f"status {program} {server} 0\n" in text, text
    assert re.search(SHOWS[program], text, re.M), text
