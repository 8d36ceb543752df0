"""Egress in Verilator: bytes as scapy builds them, one beat per cycle, stalls, bad packets."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, bench


@pytest.mark.parametrize("width", [64, 512])
def test_egress(width):
    bench(
        Rtl(
            "tests.egress.loop:EgressTop",
            {"config": NicConfig(width=width, gids=4)},
            f"egress_{width}",
        ),
        test_module="tests.egress.bench_egress",
        extra_env={"EGRESS_WIDTH": str(width)},
    )
