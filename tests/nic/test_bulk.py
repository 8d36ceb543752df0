"""Thousands of objects without the command path (``sim.bulk``), as the command path leaves them."""

from sim.build import run
from tests.nic.test_nic import model


def test_bulk_loader():
    run(model(64), test_module="tests.nic.bench_bulk")
