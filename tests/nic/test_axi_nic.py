"""The whole NIC with AXI on both sides."""

import pytest

from hdl.config import NicConfig
from sim.bench.testbench import build
from sim.rtl.build import Rtl, run
from tests.nic.axi_platform import AXI_NIC

CONFIG = NicConfig(width=64)


@pytest.mark.slow  # it needs a model of its own; it runs for seconds
def test_rdma_over_axi():
    rtl = Rtl("hdl.axi_nic:AxiNic", {"config": CONFIG, **AXI_NIC}, name="axi_nic")
    model = build(rtl, config=CONFIG, nics=1, with_models=False, fast=False)
    run(model, test_module="tests.nic.bench_axi_nic")
