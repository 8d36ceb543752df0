"""The documents: lines of prose are short, relative links lead somewhere, the site builds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from amaranth.lib.data import Layout
from click.testing import CliRunner
from mkdocs.exceptions import Abort

from hdl.common.count import BYTES, COUNT
from hdl.context.counter_bank import EIGHTH, STEP
from hdl.ports.context import QP_TABLES, readers
from hdl.ports.counter_names import QP_COUNTER_SLOTS, QP_COUNTERS
from hdl.ports.headers import GidRow, PkeyRow
from hdl.ports.jobs import LINE_USES
from hdl.ports.rows import MrRow
from hdl.transport.receive.commit import LINES
from sim.make import registers, site
from sim.rtl.env import REPO

COLUMNS = 100
PAGES = sorted([REPO / "README.md", REPO / "CHANGELOG.md", *(REPO / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
#: A file of the repository, named by its whole path.
FILE = re.compile(
    r"(?<![\w/.<])(?:boards|docs|firmware|hdl|sim|tests)/(?:\w+/)*\w+\.(?:cpp|hpp|json|md|py|sv|txt|v)\b"
)
CODE = re.compile(r"`[^`]*`")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are neither code nor a table."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    ") and not line.lstrip().startswith("|"):
            yield number, line


def anchors(text: str) -> set[str]:
    """The anchors that headings make, as GitHub and the site write them."""
    headings = (line for _number, line in prose(text) if line.startswith("#"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def dead_links(page: Path) -> list[str]:
    """Relative links of a page to a file or a heading that does not exist."""
    dead = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for target in LINK.findall(CODE.sub("", line)):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            if not file.exists() or (
                anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())
            ):
                dead.append(f"{page.name}:{number}: {target}")
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_narrow(page: Path) -> None:
    wide = [
        f"{page.name}:{number}: {len(line)} columns"
        for number, line in prose(page.read_text())
        if len(line) > COLUMNS
    ]
    assert not wide


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)


def test_rows_of_the_tables() -> None:
    """Widths and reading ports in docs/context.md are those of the layouts."""
    shown = {
        cells[0].strip("`"): cells
        for line in (REPO / "docs" / "context.md").read_text().splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5
    }
    rows = {name: table.row for name, table in QP_TABLES.items()}
    rows |= {"mrs": MrRow, "gids": GidRow, "pkeys": PkeyRow}
    assert {name: shown[name][2] for name in rows} == {
        name: str(Layout.cast(row).size) for name, row in rows.items()
    }
    assert {name: sorted(shown[name][3].partition(":")[0].split(", ")) for name in QP_TABLES} == {
        name: sorted(readers(name)) for name in QP_TABLES
    }


def test_states_of_the_receive_side() -> None:
    """The table in docs/receive.md names each state of its machines, and no other."""
    sources = "".join(path.read_text() for path in (REPO / "hdl" / "transport").rglob("*.py"))
    classes = dict(
        re.findall(r"^class (\w+)(.*?)(?=^class |\Z)", sources, re.DOTALL | re.MULTILINE)
    )
    page = (REPO / "docs" / "receive.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*[A-Z]{3}.*) \|$", page.partition("| machine |")[2], re.M)
    assert len(rows) == 5
    for machine, text in rows:
        told = set(re.findall(r"\b[A-Z]+(?:-[A-Z]+)*\b", text)) - {"WQE", "READ"}
        states = set(re.findall(r'm\.State\("([\w-]+)"', classes[machine])) - {"READ"}
        assert told == states, machine


@pytest.mark.parametrize(
    ("page", "figure"),
    [
        ("context", f"{COUNT} or {BYTES} bits"),
        ("context", f"counts events in {COUNT} bits and bytes in {BYTES} bits"),
        ("context", f"writes it back, in {STEP} cycles"),
        ("context", f"({1 << COUNT - EIGHTH} events or {1 << BYTES - EIGHTH - 10} KiB)"),
        ("context", f"at most {2 * STEP} cycles for each counter"),
        ("context", f"needs {1 << COUNT} cycles to wrap"),
        ("context", f"needs {1 << BYTES - 10} KiB"),
        ("receive", f"rests while {LINES} jobs that read a line of `RecvFetch` are pending"),
        ("receive", f"room for {LINE_USES} (`LINE_USES`)"),
        (
            "recipes",
            f"Of the {QP_COUNTER_SLOTS} words of a QP (`QP_COUNTER_SLOTS`) {len(QP_COUNTERS)} are",
        ),
    ],
)
def test_figures_in_prose(page: str, figure: str) -> None:
    """Figures that follow from constants of the gateware."""
    assert figure in " ".join((REPO / "docs" / f"{page}.md").read_text().split())


@pytest.mark.parametrize("page", ["README.md", "docs/boards.md", "docs/limits.md"])
def test_the_clock_is_told_beside_the_rate(page: str) -> None:
    """Where 100 Gb/s are claimed, with what the recorded estimate says of their clock."""
    estimates = json.loads((REPO / "tests" / "data" / "timing.json").read_text())
    text = " ".join((REPO / page).read_text().split())
    assert "timing.md)" in text
    for board in ("u55c", "de10_agilex"):
        assert f"{estimates[board]['fmax_mhz']['usual']} MHz" in text, "what the pages say is stale"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    missing = [name for name in FILE.findall(page.read_text()) if not (REPO / name).exists()]
    assert not missing


def test_every_page_is_reached_from_the_first() -> None:
    """By links alone, without the site's navigation."""
    first = REPO / "docs" / "index.md"
    reached, todo = {first}, [first]
    while todo:
        page = todo.pop()
        targets = LINK.findall(CODE.sub("", page.read_text()))
        names = {target.partition("#")[0] for target in targets if "://" not in target}
        found = {(page.parent / name).resolve() for name in names if name.endswith(".md")}
        todo += found - reached
        reached |= found
    assert set(PAGES) <= reached
    direct = {target for target in LINK.findall(first.read_text()) if target.endswith(".md")}
    assert {page.name for page in (REPO / "docs").glob("*.md")} - direct == {"index.md"}


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n[good](#a-b-c) [web](https://example.org) `[no](link)`\n"
        "[bad](#a) [worse](none.md)\n[other](page.md#a-b-c)\n"
    )
    assert dead_links(page) == ["page.md:3: #a", "page.md:3: none.md"]


def test_site_builds(tmp_path: Path) -> None:
    """Every page is in the navigation, and every link and anchor of the site exists."""
    site.build(tmp_path)
    for name in ("index", "overview", "architecture", "registers/index"):
        assert (tmp_path / f"{name}.html").stat().st_size > 1000
    assert "googleapis" not in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("link", ["none.md", "architecture.md#none", "registers/none.html"])
def test_broken_link_fails_the_site(link: str, tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    shutil.copytree(REPO / "docs", pages)
    with (pages / "glossary.md").open("a") as page:
        page.write(f"\n[broken]({link})\n")
    settings = (REPO / "mkdocs.yml").read_text()
    for name in ("docs_dir: docs", "hooks: [sim/make/site.py]"):
        assert settings.count(name) == 1
    settings = settings.replace("docs_dir: docs", f"docs_dir: {pages}")
    settings = settings.replace("[sim/", f"[{REPO}/sim/")
    (tmp_path / "mkdocs.yml").write_text(settings)
    with pytest.raises(Abort, match="warnings in strict mode"):
        site.build(tmp_path / "site", tmp_path / "mkdocs.yml")


def test_registers_command_writes_all(tmp_path: Path) -> None:
    result = CliRunner().invoke(registers.registers, ["--width", "64", "-o", str(tmp_path)])
    assert result.exit_code == 0
    paths = [Path(line) for line in result.output.splitlines()]
    assert [path.name for path in paths] == ["rocinante.rdl", "rocinante.h", "index.html"]
    assert all(path.stat().st_size > 1000 for path in paths)
    assert "value[31:0] = 0x40;" in paths[0].read_text()
