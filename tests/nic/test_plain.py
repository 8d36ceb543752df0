"""The model that all simulations run on is the design that Verilator has made of the gateware.

Before it is compiled, its C++ is rewritten: two cards share their code (sim/rtl/twins.py) and take
turns (sim/rtl/interleave.py). While it runs, idle cycles are left out and cards sleep. None of this
may show.
"""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from tests.sim.test_models import recorded


@pytest.mark.slow
def test_the_plain_model_gives_the_same_trace(tmp_path):
    """Frames with their times, interrupts, completions, counters and memory of two cards on a
    network that loses frames are those of a model that nothing has rewritten, edge by edge."""
    config = NicConfig(width=64)
    usual = testbench.build(config=config)
    plain = testbench.plain(config)
    assert usual.folder != plain.folder
    found = recorded(usual, "tests.nic.bench_sleep", tmp_path / "usual", jump="1", SEED=1)
    expected = recorded(plain, "tests.nic.bench_sleep", tmp_path / "plain", jump="0", SEED=1)
    assert len(expected.trace) > 25 and len(expected.capture) > 40_000
    assert found.capture == expected.capture
    assert found.trace == expected.trace
    assert found.clock["cycles"] == expected.clock["cycles"]
    assert expected.clock["skipped"] == expected.clock["slept"] == 0
    assert found.clock["skipped"] > 0 and found.clock["slept"] > 0
