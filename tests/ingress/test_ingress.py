"""Ingress in Verilator: captures, flipped bits, malformed packets, throughput, backpressure."""

import pytest

from hdl.config import NicConfig
from sim.build import bench


@pytest.mark.parametrize("width", [64, 512])
def test_ingress(width):
    bench(
        factory="hdl.ingress.ingress:Ingress",
        params={"config": NicConfig(width=width, gids=4, receive_bytes=16384)},
        name=f"ingress_{width}",
        test_module="tests.ingress.bench_ingress",
        extra_env={"INGRESS_WIDTH": str(width)},
    )
