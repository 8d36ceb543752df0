"""WriteEngine: room tests in Verilator, and its parameters."""

import pytest

from hdl.config import NicConfig
from hdl.host.write import WriteEngine
from sim.rtl.build import run
from tests.host.test_read import model


@pytest.mark.parametrize("width", [64, 512])
def test_write_engine(width):
    run(model(width), test_module="tests.host.bench_write", extra_env={"WIDTH": str(width)})


def test_bad_parameters():
    with pytest.raises(ValueError, match="Clients must be 1 to 16, not 17"):
        WriteEngine(config=NicConfig(), clients=17)
    for clients in ((0, 2), (0, 0)):
        with pytest.raises(ValueError, match="different ones of 0 to 1"):
            WriteEngine(config=NicConfig(), clients=2, placed=clients[:1], narrow=clients[1:])
