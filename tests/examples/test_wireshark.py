"""The Wireshark script makes fields of what a trace says, as tshark shows them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from firmware.daemon.trace import capture
from firmware.tracer import TracedFrame
from hdl.ports.counter_names import COUNTER_TEXTS, DROP_REASONS
from sim.rtl.env import REPO
from sim.wire.packets import build

SCRIPT = REPO / "examples" / "wireshark" / "rocinante.lua"


def shown(path: Path, *fields: str, only: str = "") -> list[list[str]]:
    """Fields of each frame."""
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-r", str(path), "-T", "fields"]
    command += ["-Y", only] if only else []
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "lua" not in done.stderr.lower(), done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A frame that left, one marked as bad, one for each reason of a drop, a good one."""
    if shutil.which("tshark") is None:
        pytest.skip("there is no tshark here")
    octets = build(0x04, payload=b"a card")  # SEND_ONLY of RC
    frames = [
        TracedFrame(1, False, octets, len(octets)),
        TracedFrame(2, False, octets, len(octets), error=True),
        *(TracedFrame(3 + n, True, octets, 900, name) for n, name in enumerate(DROP_REASONS)),
        TracedFrame(99, True, octets, len(octets)),
    ]
    path = tmp_path / "card.pcapng"
    path.write_bytes(capture(frames, card="0.1.0", now=100, time_ns=10**18, hz=250_000_000))
    return path


def test_what_the_trace_says_are_fields(trace: Path) -> None:
    rows = shown(trace, "rocinante.way", "rocinante.drop", "rocinante.cause", "rocinante.bad")
    causes = [COUNTER_TEXTS[name].removeprefix("dropped: ") for name in DROP_REASONS]
    assert [row[1] for row in rows] == ["", "", *DROP_REASONS, ""]
    assert [row[2] for row in rows] == ["", "", *causes, ""]
    assert [row[0] for row in rows] == ["sent"] * 2 + ["received"] * (len(DROP_REASONS) + 1)
    assert [bool(row[3]) for row in rows] == [False, True] + [False] * (len(rows) - 2)


def test_drops_are_found_and_warned_of(trace: Path) -> None:
    found = shown(trace, "frame.number", "_ws.col.Info", only='rocinante.drop == "rx_drops_icrc"')
    assert len(found) == 1 and found[0][1].endswith("[dropped: rx_drops_icrc]")
    warned = shown(trace, "frame.number", only="rocinante.dropped")
    assert len(warned) == len(DROP_REASONS)


def test_other_captures_are_left_alone(trace: Path) -> None:
    """A capture without the trace's interfaces has none of the fields."""
    other = trace.with_name("other.pcapng")
    other.write_bytes(
        trace.read_bytes()
        .replace(b"\x02\x00\x02\x00tx", b"\x02\x00\x02\x00e0")
        .replace(b"\x02\x00\x02\x00rx", b"\x02\x00\x02\x00e1")
    )
    assert shown(other, "frame.number") and not shown(other, "frame.number", only="rocinante")
