"""The roofline: what line, host and pipeline allow for each size of message, and what was measured.

The measured cards are those of ``perf`` without options: 512 bits at 250 MHz, a line of 100 Gb/s, a
host of 110 Gb/s each way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from hdl.config import NicConfig
from hdl.wire.headers import BTH, ETHERNET, IPV4, RETH, UDP
from sim.review.sequence import drawn

__all__ = ["HOST_GBPS", "LINE_GBPS", "line_limit", "pipeline_limit", "points", "roofline"]

#: Defaults of ``perf``.
LINE_GBPS, HOST_GBPS, MTU = 100, 110, 4096
_ICRC, _FCS = 4, 4
#: Preamble and the gap between two frames, bytes.
_AROUND = 20
_SIZES = [2**power for power in range(3, 21)]
_MARKS = {"write": "o", "send": "s", "read": "^", "atomic": "D"}


def _frames(size: int) -> list[int]:
    """Bytes of the frames of a WRITE without FCS."""
    plain = ETHERNET.size + IPV4.size + UDP.size + BTH.size + _ICRC
    whole, rest = divmod(size, MTU)
    payloads = [MTU] * whole + [rest] * bool(rest)
    padded = [plain + -(-payload // 4) * 4 for payload in payloads]
    return [padded[0] + RETH.size, *padded[1:]]


def line_limit(size: int) -> float:
    """Gb/s of payload that the line lets through in WRITEs of ``size`` bytes."""
    return LINE_GBPS * size / sum(frame + _FCS + _AROUND for frame in _frames(size))


def pipeline_limit(size: int) -> float:
    """Gb/s of payload when each cycle has a beat of a WRITE's frames."""
    card = NicConfig()
    beats = sum(-(-frame // card.bytes_per_beat) for frame in _frames(size))
    return card.clock_hz * 8 * size / beats / 1e9


def points(speed: Mapping[str, Any]) -> list[tuple[str, int, float, str]]:
    """Return the recorded rates in one direction and with the default line, host and MTU: verb,
    bytes of a message, Gb/s, command."""
    other = ("-b", "-m", "--impair", "--miss-qps", "--tlp-headers", "--host", "--line", "--sges")
    found = []
    for command, row in speed.items():
        size = re.search(r"-s (\d+)", command)
        if "gbps" in row["figures"] and size and not any(f" {one}" in command for one in other):
            verb = command.partition("_")[0]
            found.append((verb, int(size[1]), row["figures"]["gbps"], command))
    return found


def roofline(speed: Mapping[str, Any]) -> str:
    """Return limits and measured points over the size of a message as SVG."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    line = [line_limit(size) for size in _SIZES]
    pipeline = [pipeline_limit(size) for size in _SIZES]
    roof = [min(*both, HOST_GBPS) for both in zip(line, pipeline, strict=True)]
    axes.fill_between(_SIZES, roof, color="#0072B2", alpha=0.08)
    axes.plot(_SIZES, line, "-", color="#0072B2", label="line: 100 Gb/s less all headers")
    axes.plot(_SIZES, pipeline, "--", color="#009E73", label="pipeline: a beat a cycle")
    axes.plot(_SIZES, [HOST_GBPS] * len(_SIZES), ":", color="#E69F00", label="host: 110 Gb/s")
    for verb, mark in _MARKS.items():
        some = [point for point in points(speed) if point[0] == verb]
        if some:
            axes.plot(
                [size for _, size, _, _ in some],
                [gbps for _, _, gbps, _ in some],
                mark,
                color="#1a1a1a",
                fillstyle="none",
                label=f"measured, {verb}",
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(1, 200)
    axes.set_xlabel("bytes of a message")
    axes.set_ylabel("Gb/s of payload")
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    ticks = _SIZES[::3]
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.set_title("Limits of a WRITE, and what was measured", loc="left", fontsize=10)
    axes.grid(True, color="#dddddd")
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="lower right")
    return drawn(figure, "roofline")
