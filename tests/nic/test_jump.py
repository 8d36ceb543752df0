"""A whole card does the same when idle cycles are left out as when all are run."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from tests.sim.test_models import both


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_same_traces(seed, tmp_path):
    """Interrupts, completions, captures, counters, memory, and when; seeds differ in latency.

    Jumps also show that nothing in an idle card changes by itself but what is said to.
    """
    model = testbench.build(config=NicConfig(width=64))
    every, jumped = both(model, "tests.nic.bench_jump", tmp_path, SEED=seed)
    assert len(every.trace) > 40 and len(every.capture) > 10_000
    assert jumped.clock["skipped"] > 0.7 * every.clock["cycles"] and jumped.clock["jumps"] > 50
    counters = next(
        item for item in jumped.trace if isinstance(item, dict) and "local_ack_timeout_err" in item
    )
    assert counters["local_ack_timeout_err"] >= 2, counters
    # Of the 58 ticks of a timer in 60 us, few end a jump.
    assert 1 <= jumped.clock["waiting"] < 15, jumped.clock


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 4))])
def test_two_cards_sleep_at_their_own_times(seed, tmp_path):
    """As above; odd seeds have a bad network, on which QPs time out."""
    model = testbench.build(config=NicConfig(width=64))
    every, slept = both(model, "tests.nic.bench_sleep", tmp_path, SEED=seed)
    assert len(every.trace) > 25 and len(every.capture) > 40_000
    # Of both cards together, beside the cycles in which both do.
    alone = slept.clock["slept"] - 2 * slept.clock["skipped"]
    assert alone > 0.05 * slept.clock["cycles"], slept.clock
