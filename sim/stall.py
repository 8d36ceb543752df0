"""What a stalled simulation says: placeholder until hierarchy states are wired in."""

from __future__ import annotations

from typing import Any


def stall_report(testbench: Any) -> str:
    return ""
