"""The register blocks: one build, Python in the place of firmware and rooms."""

import pytest

from hdl.config import NicConfig
from hdl.csr.blocks import TABLES
from hdl.csr.fabric import CsrFabric
from hdl.csr.map import row_map
from hdl.csr.row_register import LANES, ROW_WORDS
from sim.rtl.build import Rtl, bench

CONFIG = NicConfig(
    width=64,
    qps=8,
    cqs=4,
    mrs=16,
    gids=3,
    commit=0xFEDC_BA98,
    trace_frames=16,
    latency=True,
    parity=True,
)
NAMES = {
    "port_counters": ("rx_packets", "drops"),
    "counter_names": tuple(f"counter_{i}" for i in range(40)),
    "debug_names": ("levels", "states"),
}


def test_management():
    bench(
        Rtl("hdl.csr.management:Management", {"config": CONFIG, **NAMES}),
        test_module="tests.csr.bench_management",
    )


def test_bad_parameters():
    with pytest.raises(ValueError, match="Pages must differ"):
        CsrFabric(pages={"a": 1, "b": 1})
    with pytest.raises(ValueError, match="beyond the address space: 256"):
        CsrFabric(pages={"a": 256})
    with pytest.raises(ValueError, match="beyond the address space: range"):
        CsrFabric(pages={"a": range(254, 257)})
    with pytest.raises(ValueError, match="'a' must be aligned, not range"):
        CsrFabric(pages={"a": range(2, 5)})


def test_rows_have_places_of_their_own():
    """In the register of the windows: each table in one lane, none upon another of its lane."""
    assert sorted(table for tables in LANES.values() for table in tables) == sorted(TABLES)
    for tables in LANES.values():
        end = 0
        for table, first in tables.items():
            assert first >= end
            end = first + row_map(table).words
        assert end <= ROW_WORDS
