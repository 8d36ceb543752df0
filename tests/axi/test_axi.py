"""The AXI adapter: room tests in Verilator with cocotbext-axi."""

import pytest

from hdl.config import NicConfig
from sim.bench.testbench import build
from sim.rtl.build import Rtl, run

#: Writers that write anything; one more is narrow.
WRITERS = 3
BURSTS = 32


def config(width: int) -> NicConfig:
    """That of the DMA engines' own tests."""
    return NicConfig(width=width, read_tags=32, read_bytes=512, write_bytes=256)


def model(width: int, **settings):
    rtl = Rtl("tests.axi.card:AxiCard", {"config": config(width), **settings})
    return build(rtl, config=config(width), nics=1, with_models=False, fast=False)


@pytest.mark.parametrize("width", [64, 512])
def test_adapter(width):
    run(model(width), test_module="tests.axi.bench_axi", extra_env={"WIDTH": str(width)})
