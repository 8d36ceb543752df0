"""The site of a review as a browser shows it from the file system, and against a revision."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hdl.config import NicConfig
from sim.review.command import review
from sim.review.diagram import flows
from sim.rtl import env
from sim.tools.checkout import copy_work_tree
from tests.browser import document


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a small card and of the default one's sister."""
    folder = tmp_path_factory.mktemp("review")
    for name, text in (("narrow", "width = 64"), ("traced", "trace_frames = 64")):
        (folder / f"{name}.toml").write_text(text)
    cards = [f"--config={folder / name}.toml" for name in ("narrow", "traced")]
    done = CliRunner().invoke(review, [*cards, "-o", str(folder / "site")])
    assert done.exit_code == 0, done.output
    return folder / "site"


def test_browser_shows_all_sections_and_draws_the_blocks(built: Path, tmp_path: Path) -> None:
    shown = document(built / "index.html", tmp_path)
    for title in ("What this card is", "Speed", "Cost", "Interfaces", "Verification"):
        assert re.search(rf"<h2[^>]*>{title}</h2>", shown)
    assert "Differences" not in shown and 'class="missing"' not in shown
    drawings = re.findall(r'<pre class="mermaid"[^>]*>(.*?)</pre>', shown, re.S)
    assert len(drawings) == 2
    for drawing in drawings:
        assert "<svg" in drawing and "Syntax error" not in drawing
        for block in ("host_side", "transport", "egress"):
            assert re.search(rf">{block}<", drawing)
    assert len(re.findall(r'<figure class="plot"><svg', re.sub(r"\s+<svg", "<svg", shown))) == 6
    # Each register of either card, each requirement, each recorded row.
    for text in ("function0_needs_reset", "stop_reasons", "VR-5.21", "read_bw -s 65536"):
        assert text in unescape(shown)


def test_it_loads_nothing_from_elsewhere(built: Path) -> None:
    page = (built / "index.html").read_text()
    assert re.findall(r'(?:src|href)="(?!#)([^"]*)"', re.sub(r'xlink:href="#', "", page)) == [
        "mermaid.js"
    ]
    assert (built / "mermaid.js").stat().st_size > 10**6


def test_each_room_has_its_branches_that_no_test_enters(built: Path) -> None:
    page = unescape((built / "index.html").read_text())
    found = json.loads((built / "review.json").read_text())["facts"]["code"]
    table = page.partition('class="branches"')[2].partition("</table>")[0]
    assert {"transport", "memory", "queues", "host"} <= {*re.findall("<td>([^<]*)", table)}
    for row in found["rows"]:
        for line, name in row["missing"]:
            assert f"<code>{row['what']}:{line}</code> {name}<br>" in table


def test_json_holds_the_facts(built: Path) -> None:
    found = json.loads((built / "review.json").read_text())["facts"]
    assert list(found["cards"]) == ["narrow", "traced"]
    assert found["cards"]["narrow"]["config"]["width"] == 64
    assert "trace" in found["cards"]["traced"]["registers"]
    assert "trace" not in found["cards"]["narrow"]["registers"]


def test_flows_are_those_of_the_elaborated_design() -> None:
    """Streams and their bits, as docs/architecture.md draws them."""
    for width in (64, 512):
        found = {(one.source, one.target): one.streams for one in flows(NicConfig(width=width))}
        beat = found["MAC", "border"]["mac_rx"]
        assert beat == width + width // 8 + 3
        assert found["ingress", "memory"] == {"payload": beat}
        assert "job" in {name.partition(".")[2] for name in found["transport", "memory"]}
        assert ("ingress", "egress") not in found


def test_a_register_moved_and_a_speed_lost_are_red(tmp_path: Path) -> None:
    """Against the commit before, in a checkout of their own."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    tree = tmp_path / "tree"
    copy_work_tree(tree)
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "before")):
        subprocess.run(["git", *who, *words], cwd=tree, check=True)
    blocks = tree / "hdl" / "csr" / "blocks.py"
    text, old = blocks.read_text(), 'Register("scratch", ('
    assert text.count(old) == 1
    blocks.write_text(text.replace(old, 'Register("scratch", offset=0xF00, fields=('))
    perf = tree / "tests" / "data" / "perf.json"
    rows: Any = json.loads(perf.read_text())
    rows["rows"][0]["figures"]["gbps"] /= 2
    perf.write_text(json.dumps(rows))
    code = tree / "tests" / "data" / "code_coverage.json"
    branches: Any = json.loads(code.read_text())
    branches["rows"][0]["missing"].append(["1", "an: m.If(branch)"])
    code.write_text(json.dumps(branches))
    command = [sys.executable, "-m", "sim.tools.cli", "review", "--base", "HEAD", "--check"]
    surroundings = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [*command, "-o", "site"],
        cwd=tree,
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    shown = document(tree / "site" / "index.html", tmp_path)
    red = [unescape(row) for row in re.findall(r'<tr class="lost"><td>([^<]*)', shown)]
    assert "core.scratch" in red
    assert any(name.startswith(rows["rows"][0]["command"]) for name in red)
    assert f"{branches['rows'][0]['what']}: an: m.If(branch)" in red
    found = json.loads((tree / "site" / "review.json").read_text())["differences"]
    assert "Differences from HEAD: 3 lost, 0 gained" in done.stdout
    assert sum(one["verdict"] == "lost" for one in found) == 3


def test_only_a_difference_can_be_checked(tmp_path: Path) -> None:
    done = CliRunner().invoke(review, ["--check", "-o", str(tmp_path / "site")])
    assert done.exit_code == 2 and "--check needs --base" in done.output


def test_there_must_be_such_a_revision(tmp_path: Path) -> None:
    if not env.CHECKOUT or shutil.which("git") is None:
        pytest.skip("this is no checkout")
    done = CliRunner().invoke(review, ["--base", "no-such", "-o", str(tmp_path / "site")])
    assert done.exit_code == 2 and "There is no revision no-such" in done.output
