"""The PCIe adapters: room tests in Verilator with cocotbext-pcie's models of the blocks."""

from dataclasses import replace

import pytest

from sim.bench.testbench import build
from sim.rtl.build import Rtl, run
from tests.axi.test_axi import config

#: Cycles until a read without completion fails: longer than the model ever takes.
TIMEOUT = 4096
CARDS = {"pcie4": "PcieCard", "ptile": "PTileCard"}
#: More than a function may use that has not been allowed more.
TAGS = 64


def model(block):
    chosen = replace(config(512), read_tags=TAGS)
    rtl = Rtl(f"tests.pcie.card:{CARDS[block]}", {"config": chosen, "timeout": TIMEOUT})
    return build(rtl, config=chosen, nics=1, with_models=False, fast=False)


@pytest.mark.parametrize("block", CARDS)
def test_adapter(block):
    run(model(block), test_module="tests.pcie.bench_pcie", extra_env={"BLOCK": block})


@pytest.mark.slow
@pytest.mark.parametrize("block", CARDS)
def test_late_completions(block):
    run(model(block), test_module="tests.pcie.bench_late", extra_env={"BLOCK": block})
