"""A card with a network function beside that for RDMA."""

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.bench_network import CONFIG


def test_network_function():
    run(
        testbench.build(config=CONFIG),
        test_module="tests.nic.bench_network",
        timeout_s=600,
    )
