"""Ingress in Verilator: captures, flipped bits, malformed packets, throughput, backpressure."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, bench


@pytest.mark.parametrize("width", [64, 512])
def test_ingress(width):
    bench(
        Rtl(
            "hdl.ingress.ingress:Ingress",
            {"config": NicConfig(width=width, gids=4, receive_bytes=16384, trace_frames=2)},
            f"ingress_{width}",
        ),
        test_module="tests.ingress.bench_ingress",
        extra_env={"INGRESS_WIDTH": str(width)},
    )


def test_line_rate():
    """With the buffer that the card has."""
    bench(
        Rtl("hdl.ingress.ingress:Ingress", {"config": NicConfig(width=512, gids=4)}, "ingress_512"),
        test_module="tests.ingress.bench_line_rate",
        extra_env={"INGRESS_WIDTH": "512"},
    )
