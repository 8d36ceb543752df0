"""The whole NIC behind cocotbext-pcie's model of the block and its root complex."""

import pytest

from hdl.config import NicConfig
from sim.bench.testbench import build
from sim.rtl.build import Rtl, run
from tests.pcie.test_pcie import TIMEOUT

#: The adapter has 512 bits. Tables are small, for the sake of the compiler.
CONFIG = NicConfig(
    width=512, qps=16, cqs=16, mrs=64, recv_lines=128, read_sinks=64, outstanding=128,
    read_resources=128, translation_lines=64, queue_size=256,
)  # fmt: skip


def nic_model():
    rtl = Rtl("hdl.pcie_nic:PcieNic", {"config": CONFIG, "timeout": TIMEOUT}, name="pcie_nic")
    return build(rtl, config=CONFIG, nics=1, with_models=False, fast=False)


@pytest.mark.slow  # it needs a model of its own; it runs for a minute
def test_rdma_over_pcie():
    run(nic_model(), test_module="tests.pcie.bench_pcie_nic")
