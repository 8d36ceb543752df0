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
    for clients in ((), ("a", "a"), tuple(map(str, range(17)))):
        with pytest.raises(ValueError, match="Clients must be 1 to 16 different names"):
            WriteEngine(config=NicConfig(), clients=clients)
    for placed, narrow in ("ac", "aa"):
        with pytest.raises(ValueError, match=r"different ones of \('a', 'b'\)"):
            WriteEngine(config=NicConfig(), clients=("a", "b"), placed=(placed,), narrow=(narrow,))
