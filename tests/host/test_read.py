"""ReadEngine: room tests in Verilator, and its parameters."""

import pytest

from hdl.config import NicConfig
from hdl.host.read import ReadEngine
from sim.bench.testbench import build
from sim.rtl.build import Rtl, run

#: Writers that write anything; one more is narrow.
CLIENTS, WRITERS = 3, 3


def config(width: int) -> NicConfig:
    """Small enough for the ring of tags to go round often."""
    return NicConfig(width=width, read_tags=32, read_bytes=512, write_bytes=256)


def model(width: int, **settings):
    """The simulation that the tests of both engines share."""
    parameters = {"config": config(width), "reads": CLIENTS, "writes": WRITERS + 1} | settings
    return build(Rtl("tests.host.dma:Dma", parameters), config=config(width), nics=1)


@pytest.mark.parametrize("width", [64, 512])
def test_read_engine(width):
    run(model(width), test_module="tests.host.bench_read", extra_env={"WIDTH": str(width)})


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 512])
def test_read_engine_in_address_lanes(width):
    """The same, each byte in the lane of its address: the more lanes the better."""
    run(
        model(width, address_lanes=True),
        test_module="tests.host.bench_read",
        extra_env={"WIDTH": str(width), "ADDRESS_LANES": "1"},
    )


def test_bad_parameters():
    for clients in ((), ("a", "a"), tuple(map(str, range(17)))):
        with pytest.raises(ValueError, match="Clients must be 1 to 16 different names"):
            ReadEngine(config=NicConfig(), clients=clients)
    with pytest.raises(ValueError, match=r"Direct clients must be some of .*, not \('c',\)"):
        ReadEngine(config=NicConfig(), clients=("a", "b"), direct=("c",))
