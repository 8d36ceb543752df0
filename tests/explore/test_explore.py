"""The command: what it measures is what ``synth`` and ``perf`` measure; its page and its JSON."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hdl.config import NicConfig
from sim.campaign.work import code
from sim.explore.command import explore
from sim.explore.work import Job, do, plan_for, total
from sim.make.synth.parts import SMALL, choose
from sim.make.synth.report import measure as mapped
from sim.measure.perf.command import measure, plan_of
from tests.browser import document


def run(folder: Path, *options: str) -> tuple[int, str, Any]:
    done = CliRunner().invoke(explore, [*options, "--workers", "1", "-o", str(folder)])
    file = folder / "explore.json"
    return done.exit_code, done.output, json.loads(file.read_text()) if file.exists() else None


@pytest.mark.slow
def test_costs_of_a_space(tmp_path: Path) -> None:
    """Two parts of three cards, of which one cannot be: figures, front, page."""
    options = ("--size", "small", "--set", "width=64", "--sweep", "gids=1,4,0")
    status, text, found = run(
        tmp_path, *options, "--metric", "lut,ff,levels", "--room", "gids", "--room", "groups"
    )
    assert status == 0, text
    assert "1 of 3 cards are on the front" in text and "gids must be 1 to 128, not 0" in text
    small, large, none = found["cards"]
    config = NicConfig(**{**SMALL, "width": 64, "gids": 4})
    parts = [mapped(part, "xcup").figures() for part in choose(config, ("gids", "groups"))]
    assert len(parts) == 2
    assert large["figures"] == {name: total(parts)[name] for name in ("lut", "ff", "levels")}
    assert large["figures"]["lut"] == sum(part["lut"] for part in parts)
    assert large["figures"]["levels"] == max(part["levels"] for part in parts)
    assert small["figures"]["lut"] < large["figures"]["lut"]
    assert (small["front"], large["front"], none["figures"]) == (True, False, {})
    assert large["config"]["gids"] == 4 and none["config"] is None
    shown = document(tmp_path / "index.html", tmp_path)
    assert len(re.findall(r'<figure class="plot">\s*<svg', shown)) == 2
    assert shown.count('<tr class="front">') == 1
    assert unescape(found["command"]) == (
        "./rocinante explore --sweep gids=1,4,0 --metric lut,ff,levels --size small "
        "--set width=64 --room gids --room groups"
    )


def test_rates_and_latencies_are_those_of_perf() -> None:
    """And the second time nothing is simulated."""
    card, figures = NicConfig(width=64), {}
    for line in ("write_bw -s 4096 -t 16 -n 64", "write_lat -s 64 -n 8"):
        job = Job(code(), plan=plan_for(card, line))
        figures |= do(job)
        assert do(job).items() <= figures.items()
        (row,) = measure(plan_of(f"{line} --width 64"))
        wanted = row.json["latency_ns"]["p50"] if "lat" in line else row.json["gbps"]
        assert figures["latency" if "lat" in line else "gbps"] == wanted
    assert set(figures) == {"gbps", "mmsg_s", "latency"}


def test_a_plan_is_for_the_card() -> None:
    card = NicConfig(width=128, clock_hz=200_000_000, qps=1024, hot_qps=64)
    assert plan_for(card, "write_bw -q 500").config == card
    assert plan_for(NicConfig(qps=16384), "write_bw -q 500 -s 64").config == NicConfig(qps=16384)
    for qps in (128, 1024):
        with pytest.raises(ValueError, match=f"--qps must be 1 to {qps - 2}"):
            plan_for(NicConfig(qps=qps), f"write_bw -s 64 -q {qps - 1}")
    with pytest.raises(ValueError, match="--tx-depth"):
        plan_for(NicConfig(queue_size=64), "write_bw -t 64")


def test_other_code_is_refused() -> None:
    with pytest.raises(RuntimeError, match="not the same version"):
        do(Job("other", plan=plan_for(NicConfig(), "write_bw")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--metric", "luts"), "--metric must be of lut"),
        (("--sweep", "gids=0"), "gids must be 1 to 128"),
        (("--size", "small", "--config", __file__), "exclude each other"),
        (("--rate", "write_lat"), "'write_lat' measures no rate"),
        (("--rate", "writebw"), "Operation must be one of"),
        (("--room", "kitchen"), "--room must be a room"),
    ],
)
def test_bad_options_are_one_line(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    status, text, found = run(tmp_path, *options)
    assert status == 2 and said in text and found is None
