"""The pictures of a review say what is recorded."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import pairwise
from typing import Any

import pytest

from sim.review.collect import collect
from sim.review.roofline import HOST_GBPS, line_limit, pipeline_limit, points, roofline
from sim.review.sequence import sequence, stages, waterfall
from sim.rtl.env import FILES

RECORDED: Any = json.loads((FILES / "tests/data/sequences.json").read_text())
SPEED: Any = collect(FILES, {})["speed"]


@pytest.mark.parametrize("name", RECORDED["scenes"])
def test_a_sequence_shows_each_step(name: str) -> None:
    steps = RECORDED["scenes"][name]
    picture = sequence(RECORDED["lanes"], steps)
    texts = [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]
    for step in steps:
        assert f"{step['ns']:,.0f}" in texts
        assert any(text.startswith(step["text"]) for text in texts)
    turns = sum(step["from"] == step["to"] for step in steps)
    assert picture.count("<circle") == turns
    used = {step[end] for step in steps for end in ("from", "to")}
    assert len(re.findall(r'<path d="M\d+ \d+[VH]', picture)) == len(steps) - turns + len(used)
    assert picture.count(", lost</text>") == sum("lost" in step for step in steps)


def test_texts_are_escaped() -> None:
    step = {"ns": 1.0, "from": 0, "to": 1, "text": "a < b & c"}
    assert "a &lt; b &amp; c" in sequence(["<x>", "y"], [step])


def test_stages_of_a_message_add_up() -> None:
    """Each begins where the one before ends; the first with the post, the last with the WC."""
    steps = RECORDED["scenes"]["WRITE"]
    found = stages(steps)
    assert found[0][1] == 0 and found[-1][2] == steps[-1]["ns"]
    for (_, _, end), (_, begin, later) in pairwise(found):
        assert begin == end < later
    assert sum(end - begin for _, begin, end in found) == pytest.approx(steps[-1]["ns"])
    packet = next(end - begin for name, begin, end in found if name == "line: the packet")
    assert 100 < packet < 130  # 100 ns of cable, 142 bytes at 100 Gb/s
    picture = waterfall(found, "title")
    for name, _, _ in found:
        assert f">{name}<" in unescape(picture)


def test_stages_need_a_write() -> None:
    with pytest.raises(ValueError, match="reads payload"):
        stages(RECORDED["scenes"]["READ"][:6])


def test_limit_of_the_line_is_that_of_perf() -> None:
    """``perf`` counts the bytes of a capture, and calls that the wire limit."""
    rows = [
        (size, gbps / SPEED[command]["figures"]["ratio"])
        for verb, size, gbps, command in points(SPEED)
        if verb == "write" and " -c " not in command
    ]
    assert len(rows) > 8
    for size, limit in rows:
        assert line_limit(size) == pytest.approx(limit, rel=0.002), size


def test_no_write_is_above_the_roof() -> None:
    for verb, size, gbps, command in points(SPEED):
        if verb == "write":
            roof = min(line_limit(size), pipeline_limit(size), HOST_GBPS)
            assert gbps <= 1.002 * roof, command
    # A WRITE of 64 bytes is a frame of three beats, one of 40 bytes a frame of two.
    assert pipeline_limit(64) == 250e6 * 8 * 64 / 3 / 1e9
    assert pipeline_limit(40) == 250e6 * 8 * 40 / 2 / 1e9
    assert "measured, read" in roofline(SPEED)
