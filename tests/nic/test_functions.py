"""Cards with more than one guest function, and with all that watches a running card.

tests/nic/test_nic.py lints one with four functions."""

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic import bench_receive_functions
from tests.nic.bench_functions import CONFIG


def play(bench: str, config=CONFIG) -> None:
    """Run a bench beside this file; they do not run for so long that a faster model pays."""
    model = testbench.build(config=config, fast=False)
    run(model, test_module=f"tests.nic.{bench}", timeout_s=600)


def test_two_functions():
    play("bench_functions")


def test_broken_queues():
    play("bench_functions_broken")


def test_isolation():
    """What an untrusted guest, work request or peer can do."""
    play("bench_isolation")


def test_diagnostics():
    play("bench_diagnostics")


def test_packed_rings():
    """The first function's driver uses them; the engines alone are tests/queues' matter."""
    play("bench_packed")


def test_receive_queues():
    """XRC between two functions of each card, and receive requests for several packets of a driver
    with packed rings."""
    play("bench_receive_functions", bench_receive_functions.CONFIG)


def test_dynamic_connections():
    """DC of two functions of each card."""
    play("bench_dc_functions", bench_receive_functions.CONFIG)
