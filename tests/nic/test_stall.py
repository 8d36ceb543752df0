"""What a simulation of the whole NIC says when it comes to no end; counters of the guest."""

from sim.rtl.build import run
from tests.nic.test_nic import model


def test_report_and_counters():
    run(model(64), test_module="tests.nic.bench_stall")
