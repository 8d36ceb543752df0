"""The memory room: both directions in Verilator, at the narrowest and the widest data path."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, build_model, run

CONFIGS = {
    # few lines: they are shared by many pages
    64: NicConfig(width=64, mrs=64, translation_lines=8, gather_bytes=8192),
    512: NicConfig(width=512, mrs=1024, translation_lines=64, gather_bytes=32768),
}


@pytest.mark.parametrize("direction", ["gather", "scatter"])
@pytest.mark.parametrize("width", [64, 512])
def test_room(width, direction):
    config = CONFIGS[width]
    model = build_model(Rtl("tests.memory.room:Room", {"config": config}))
    run(
        model,
        test_module=f"tests.memory.bench_{direction}",
        extra_env={
            "WIDTH": str(width),
            "MRS": str(config.mrs),
            "LINES": str(config.translation_lines),
        },
        timeout_s=300,
    )
