"""The RDMA function and its router: room tests in Verilator, and what a constructor refuses."""

import pytest

from hdl.host.config_space import ConfigImage
from sim.build import Rtl, build_model, run
from tests.host.card import SMALL


def model(config):
    return build_model(Rtl("tests.host.card:Card", {"config": config}))


@pytest.mark.parametrize("part", ["config"])
def test_small_card(part):
    run(model(SMALL), test_module=f"tests.host.bench_virtio_{part}")


def test_bad_parameters():
    with pytest.raises(ValueError, match="256 bytes, not 3"):
        ConfigImage(bytearray(3), bytearray(3))
