"""Thousands of objects as the command path leaves them, without it (``sim.bench.bulk``)."""

from sim.rtl.build import run
from tests.nic.test_nic import model


def test_bulk_loader():
    run(model(64), test_module="tests.nic.bench_bulk")
