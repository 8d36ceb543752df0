"""Datagrams to multicast groups in Verilator: filter, copies, backpressure, reset."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, bench


@pytest.mark.parametrize("width", [64, 512])
def test_groups(width):
    config = NicConfig(width=width, gids=4, groups=8, functions=2, receive_bytes=16384)
    bench(
        Rtl("hdl.ingress.ingress:Ingress", {"config": config}, f"ingress_groups_{width}"),
        test_module="tests.ingress.bench_groups",
        extra_env={"INGRESS_WIDTH": str(width)},
    )
