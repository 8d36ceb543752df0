"""Pictures of a recorded message (tests/data/sequences.json): who tells whom what, and when."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["sequence", "stages", "waterfall"]

Steps = Sequence[Mapping[str, Any]]

#: Pixels: between two lanes, of the column of times, from one step to the next.
_LANE, _TIMES, _ROW = 230, 90, 19
_INK, _PACKET, _LOST = "#1a1a1a", "#0072B2", "#D55E00"
#: How a WRITE goes, as beginnings of its steps' texts; the name of what ends with each.
_WAY = (
    ("doorbell", "doorbell: on its way to the card"),
    ("reads available ring", "card: from doorbell to first read"),
    ("reads WQE", "host memory: ring, then descriptor"),
    ("reads payload", "host memory: WQE; its checks"),
    ("WRITE ONLY", "host memory: payload; packet is built"),
    (None, "line: the packet"),
    ("writes payload", "peer: from last bit to DMA write"),
    ("ACK", "peer: from write to ACK"),
    (None, "line: the ACK"),
    ("writes CQE", "host memory: descriptor of the CQ"),
    ("interrupt", "card: CQE, used rings, interrupt"),
    ("takes the completion", "driver: until it has the completion"),
)


def sequence(lanes: Sequence[str], steps: Steps) -> str:
    """Return a scene as SVG: a line for each lane, an arrow for each step, times in ns.

    The picture is not to scale: each step has a row.
    """
    used = sorted({step[end] for step in steps for end in ("from", "to")})
    x = {lane: _TIMES + _LANE // 2 + number * _LANE for number, lane in enumerate(used)}
    width, height = _TIMES + _LANE * len(used), _ROW * (len(steps) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" font-family="sans-serif" font-size="11">'
    ]
    for lane in used:
        parts.append(
            f'<text x="{x[lane]}" y="{_ROW}" text-anchor="middle" font-weight="bold">'
            f"{escape(lanes[lane])}</text>"
            f'<path d="M{x[lane]} {_ROW + 6}V{height}" stroke="#bbbbbb"/>'
        )
    for number, step in enumerate(steps):
        y = _ROW * (number + 3)
        parts.append(f'<text x="{_TIMES - 8}" y="{y}" text-anchor="end">{step["ns"]:,.0f}</text>')
        parts.append(_arrow(x[step["from"]], x[step["to"]], y, step))
    return "".join([*parts, "</svg>"])


def _arrow(source: int, target: int, y: int, step: Mapping[str, Any]) -> str:
    text = escape(step["text"]) + (f" ({step['times']} times)" if "times" in step else "")
    colour = _LOST if "lost" in step else _PACKET if "until" in step else _INK
    middle = (source + target) // 2
    words = (
        f'<text x="{middle}" y="{y - 3}" text-anchor="middle" fill="{colour}" paint-order="stroke" '
        f'stroke="#ffffff" stroke-width="3">{text}{", lost" if "lost" in step else ""}</text>'
    )
    if source == target:
        return f'<circle cx="{source}" cy="{y}" r="3" fill="{colour}"/>{words}'
    end = middle if "lost" in step else target  # what is lost gets halfway
    back = -6 if target > source else 6
    head = (
        f"M{end - 5} {y - 5}l10 10m-10 0l10 -10"
        if "lost" in step
        else f"M{end + back} {y - 4}L{end} {y}L{end + back} {y + 4}"
    )
    line = f'<path d="M{source} {y}H{end}{head}" fill="none" stroke="{colour}"/>'
    return line + words


def stages(steps: Steps) -> list[tuple[str, float, float]]:
    """Return what a WRITE of one packet spends its time with: name, begin and end, ns.

    Each stage begins where the one before ends, so they add up to the whole. Raises ValueError for
    steps that are no such WRITE.
    """
    found: list[tuple[str, float, float]] = []
    now, packet = 0.0, None
    left = list(steps)
    for beginning, name in _WAY:
        if beginning is None:
            assert packet is not None
            end = packet["until"]
        else:
            while left and not left[0]["text"].startswith(beginning):
                left.pop(0)
            if not left:
                raise ValueError(f"No step {beginning!r} in this order")
            packet, end = left[0], left[0]["ns"]
        found.append((name, now, end))
        now = end
    return found


def waterfall(found: Sequence[tuple[str, float, float]], title: str) -> str:
    """Return stages as SVG: a bar for each, below the one before and where that ends."""
    figure = Figure(figsize=(9, 0.34 * len(found) + 1), layout="constrained")
    axes = figure.subplots()
    for number, (name, begin, end) in enumerate(found):
        at_line, at_host = name.startswith("line"), name.startswith("host")
        colour = _PACKET if at_line else "#E69F00" if at_host else "#999999"
        axes.barh(number, end - begin, left=begin, color=colour)
        axes.text(end, number, f" {end - begin:,.0f} ns", va="center", fontsize=8)
    axes.set_yticks(range(len(found)), [name for name, _, _ in found], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("ns since the driver has posted")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(True, axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    return drawn(figure, title)


def drawn(figure: Figure, salt: str) -> str:
    """Return a figure as SVG that stands in a page: the same figure is the same text."""
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"rocinante {salt}", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("?>")[2].partition(">")[2]
