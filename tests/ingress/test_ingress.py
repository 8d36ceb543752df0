"""Ingress in Verilator: captures, flipped bits, malformed packets, throughput, backpressure,
multicast groups."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, bench
from tests.lengths import EVERY


def small(width: int) -> Rtl:
    """The room with a small buffer, as both tests of whole packets share it."""
    config = NicConfig(
        width=width, gids=4, groups=8, functions=2, receive_bytes=16384, trace_frames=2
    )
    return Rtl("hdl.ingress.ingress:Ingress", {"config": config}, f"ingress_{width}")


def play(width: int, **environment: str) -> None:
    bench(
        small(width),
        test_module="tests.ingress.bench_ingress",
        extra_env={"INGRESS_WIDTH": str(width), **environment},
    )


@pytest.mark.parametrize("width", [pytest.param(64, marks=pytest.mark.slow), 512])
def test_ingress(width):
    play(width)


@pytest.mark.slow
def test_every_length():
    play(512, **{EVERY: "1"})


def test_line_rate():
    """With the buffer that the card has."""
    bench(
        Rtl("hdl.ingress.ingress:Ingress", {"config": NicConfig(width=512, gids=4)}, "ingress_512"),
        test_module="tests.ingress.bench_line_rate",
        extra_env={"INGRESS_WIDTH": "512"},
    )


@pytest.mark.parametrize("width", [64, 512])
def test_groups(width):
    """Datagrams to multicast groups: filter, copies, backpressure, reset."""
    bench(
        small(width),
        test_module="tests.ingress.bench_groups",
        extra_env={"INGRESS_WIDTH": str(width)},
    )
