"""The register blocks: one build, Python in the place of firmware and rooms."""

import pytest

from hdl.config import NicConfig
from hdl.csr.fabric import CsrFabric
from hdl.csr.table_window import TableWindow
from sim.build import bench

CONFIG = NicConfig(width=64, qps=8, cqs=4, mrs=16, gids=3)
NAMES = {
    "port_counters": ("rx_packets", "drops"),
    "counter_names": tuple(f"counter_{i}" for i in range(40)),
    "debug_names": ("levels", "states"),
}


def test_management():
    bench(
        factory="hdl.csr.management:Management",
        params={"config": CONFIG, **NAMES},
        test_module="tests.csr.bench_management",
    )


def test_bad_parameters():
    with pytest.raises(ValueError, match="Pages must differ"):
        CsrFabric(pages={"a": 1, "b": 1})
    with pytest.raises(ValueError, match="beyond the address space: 256"):
        CsrFabric(pages={"a": 256})
    with pytest.raises(ValueError, match="not 'nothing'"):
        TableWindow(table="nothing", config=CONFIG)
