"""The whole NIC behind cocotbext-pcie's models of a block and its root complex."""

from dataclasses import replace

import pytest

from hdl.config import NicConfig
from sim.bench.testbench import build
from sim.rtl.build import Rtl, run
from tests.pcie.test_pcie import TIMEOUT

#: The adapter has 512 bits. Tables are small, for the sake of the compiler.
CONFIG = NicConfig(
    width=512, functions=2, qps=16, cqs=16, mrs=64, recv_lines=128, read_sinks=64, outstanding=128,
    read_resources=128, translation_lines=64, queue_size=256,
)  # fmt: skip


#: Cycles of a quarantine: longer than this root complex and its block ever hold a completion.
QUARANTINE = 1 << 16
CORES = {"pcie4": "PcieNic", "ptile": "PTileNic"}
#: P-Tile's adapter has no push window.
CONFIGS = {"pcie4": replace(CONFIG, push=True), "ptile": CONFIG}


#: With a network function, which a card has beside one for RDMA.
NETWORK = replace(CONFIG, functions=1, network=2)


def nic_model(block, config=None):
    core = f"hdl.pcie_nic:{CORES[block]}"
    config = config or CONFIGS[block]
    rtl = Rtl(
        core, {"config": config, "timeout": TIMEOUT, "quarantine": QUARANTINE}, name=f"{block}_nic"
    )
    return build(rtl, config=config, nics=1, with_models=False, fast=False)


@pytest.mark.slow  # each needs a model of its own; it runs for two minutes
@pytest.mark.parametrize("block", CORES)
def test_rdma_over_pcie(block):
    run(nic_model(block), test_module="tests.pcie.bench_pcie_nic", extra_env={"BLOCK": block})


@pytest.mark.slow  # the model is the same; it runs for two minutes
@pytest.mark.parametrize("block", CORES)
def test_no_tag_is_left(block):
    run(nic_model(block), test_module="tests.pcie.bench_pcie_tags", extra_env={"BLOCK": block})


@pytest.mark.slow  # each needs a model of its own
@pytest.mark.parametrize("block", CORES)
def test_network_over_pcie(block):
    model = nic_model(block, NETWORK)
    run(model, test_module="tests.pcie.bench_pcie_network", extra_env={"BLOCK": block})
