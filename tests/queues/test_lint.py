"""The engines pass Verilator's lint."""

from __future__ import annotations

from sim.rtl.build import Rtl, lint


def test_lint() -> None:
    lint(Rtl("tests.queues.top:QueuesTop", {"width": 64}))
