"""The RDMA function and its router: room tests in Verilator, and what a constructor refuses."""

import pytest

from hdl.host.config_space import ConfigImage
from hdl.host.kinds import rdma_kind
from hdl.host.virtio_counters import CounterWindow
from hdl.host.virtio_queues import VirtioQueues
from sim.rtl.build import Rtl, build_model, run
from tests.host.card import LARGE, SMALL


def model(config):
    return build_model(Rtl("tests.host.card:Card", {"config": config}))


@pytest.mark.parametrize("part", ["config", "setup", "events", "garbage", "flr"])
def test_small_card(part):
    run(model(SMALL), test_module=f"tests.host.bench_virtio_{part}")


def test_guest_driver_on_a_large_card():
    run(model(LARGE), test_module="tests.host.bench_virtio_driver")


def test_bad_parameters():
    with pytest.raises(ValueError, match="at least 1 port, not 0"):
        VirtioQueues(config=SMALL, kind=rdma_kind(SMALL), reads=0)
    for counters in (0, 1021):
        with pytest.raises(ValueError, match=f"1 to 1020, .*, not {counters}"):
            CounterWindow(counters=counters)
    with pytest.raises(ValueError, match="256 bytes, not 3"):
        ConfigImage(bytearray(3), bytearray(3))
