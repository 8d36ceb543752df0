"""Egress into ingress, at all widths."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, bench


@pytest.mark.parametrize("width", [128, 256])
def test_loop(width):
    """The widths that the rooms' own tests leave out; those cover 64 and 512."""
    bench(
        Rtl(
            "tests.egress.loop:Loop",
            {"config": NicConfig(width=width, gids=4, receive_bytes=16384)},
            f"loop_{width}",
        ),
        test_module="tests.egress.bench_loop",
        extra_env={"LOOP_WIDTH": str(width)},
    )
