"""Cards with more than one guest function; tests/nic/test_nic.py lints one with four."""

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.bench_functions import CONFIG


def test_two_functions():
    run(
        testbench.build(config=CONFIG),
        test_module="tests.nic.bench_functions",
        timeout_s=600,
    )
