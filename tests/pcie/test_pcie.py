"""The PCIe adapter: room tests in Verilator with cocotbext-pcie's model of the block."""

from sim.bench.testbench import build
from sim.rtl.build import Rtl, run
from tests.axi.test_axi import config

#: Cycles until a read without completion fails: longer than the model ever takes.
TIMEOUT = 4096


def model():
    rtl = Rtl("tests.pcie.card:PcieCard", {"config": config(512), "timeout": TIMEOUT})
    return build(rtl, config=config(512), nics=1, with_models=False, fast=False)


def test_adapter():
    run(model(), test_module="tests.pcie.bench_pcie")
