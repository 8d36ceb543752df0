"""The memory room: both directions in Verilator, at the narrowest and the widest data path."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, build_model, run

CONFIGS = {
    # few lines: they are shared by many pages
    64: NicConfig(width=64, mrs=64, translation_lines=8, gather_bytes=8192),
    512: NicConfig(width=512, mrs=1024, translation_lines=64, gather_bytes=32768),
}
#: One packet at a time in each stage, and each page read when it is needed.
PLAIN = NicConfig(
    width=64, mrs=64, translation_lines=0, two_level=False, packets_ahead=1, gather_bytes=8192
)


@pytest.mark.parametrize("direction", ["gather", "scatter"])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(CONFIGS[64], id="64"),
        pytest.param(CONFIGS[512], id="512", marks=pytest.mark.slow),
        pytest.param(PLAIN, id="one_by_one", marks=pytest.mark.slow),
    ],
)
def test_room(config, direction):
    model = build_model(Rtl("tests.memory.room:Room", {"config": config}))
    run(
        model,
        test_module=f"tests.memory.bench_{direction}",
        extra_env={
            "WIDTH": str(config.width),
            "MRS": str(config.mrs),
            "LINES": str(config.translation_lines),
        },
        timeout_s=300,
    )
