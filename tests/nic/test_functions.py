"""Cards with more than one guest function, and with all that watches a running card.

tests/nic/test_nic.py lints one with four functions."""

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.bench_functions import CONFIG


def test_two_functions():
    run(
        testbench.build(config=CONFIG),
        test_module="tests.nic.bench_functions",
        timeout_s=600,
    )


def test_diagnostics():
    run(
        testbench.build(config=CONFIG),
        test_module="tests.nic.bench_diagnostics",
        timeout_s=600,
    )


def test_packed_rings():
    """The first function's driver uses them; the engines alone are tests/queues' matter."""
    run(
        testbench.build(config=CONFIG),
        test_module="tests.nic.bench_packed",
        timeout_s=600,
    )
