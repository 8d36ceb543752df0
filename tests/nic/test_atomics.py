"""Atomics between two whole cards: ``bench_atomics.py`` beside this file."""

from sim.rtl.build import run
from tests.nic.test_nic import model


def test_atomics():
    """At the width that simulates sooner: tests/memory has what a beat's width changes."""
    run(
        model(64),
        test_module="tests.nic.bench_atomics",
        extra_env={"ROCINANTE_WIDTH": "64"},
        timeout_s=600,
    )
