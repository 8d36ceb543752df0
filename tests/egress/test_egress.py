"""Egress in Verilator: bytes as scapy builds them, one beat per cycle, stalls, bad packets."""

import pytest

from hdl.config import NicConfig
from sim.rtl.build import Rtl, bench
from tests.lengths import EVERY


def play(width: int, ahead: int, **environment: str) -> None:
    bench(
        Rtl(
            "tests.egress.loop:EgressTop",
            {"config": NicConfig(width=width, gids=4, packets_ahead=ahead)},
            f"egress_{width}_{ahead}",
        ),
        test_module="tests.egress.bench_egress",
        extra_env={"EGRESS_WIDTH": str(width), "EGRESS_AHEAD": str(ahead), **environment},
    )


@pytest.mark.parametrize(("width", "ahead"), [(64, 256), (512, 256), (64, 1)])
def test_egress(width, ahead):
    """Headers of several packets are built ahead of the wire, or one packet's after the other's."""
    play(width, ahead)


@pytest.mark.slow
def test_every_length():
    play(512, 256, **{EVERY: "1"})
