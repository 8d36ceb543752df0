"""The data path of the network function in Verilator, at the narrowest and the widest beat."""

from __future__ import annotations

import pytest

from sim.rtl.build import Rtl, bench
from tests.network.driver import small_config


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", ["receive", "transmit", "control"])
def test_network(part: str, width: int) -> None:
    bench(
        Rtl("hdl.network.network:Network", {"config": small_config(width)}),
        test_module=f"tests.network.bench_{part}",
        timeout_s=400,
    )


def test_speed() -> None:
    """At 64 bits the beats bound it."""
    bench(
        Rtl("hdl.network.network:Network", {"config": small_config(512)}),
        test_module="tests.network.bench_speed",
        timeout_s=400,
    )
