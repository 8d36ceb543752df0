"""The comparison with cocotbext-axi: its hosts and wire, what is compared, the command."""

import json

import pytest
from click.testing import CliRunner

from sim.bench.testbench import build
from sim.measure.simspeed.command import Speed, compare, simspeed
from sim.rtl.build import Rtl, run
from tests.sim.test_models import config


@pytest.mark.parametrize("width", [pytest.param(64, marks=pytest.mark.slow), 512])
def test_axi_hosts_and_wire(width):
    rtl = Rtl("tests.sim.echo:Echo", {"config": config(width)})
    model = build(rtl, config=config(width), nics=2, with_models=False)
    run(model, test_module="tests.measure.bench_axi", extra_env={"WIDTH": str(width)})


def test_ratios():
    """From cycles and seconds of both; never of different traffic."""
    compiled, other = Speed(30_000, 0.5, 4096), Speed(40_000, 8.0, 4096)
    assert compare(compiled, other) == {"cycles_ratio": 12.0, "time_ratio": 16.0}
    with pytest.raises(AssertionError, match="Not the same traffic"):
        compare(compiled, Speed(40_000, 8.0, 4095))


def test_refuses_nothing_to_measure():
    result = CliRunner().invoke(simspeed, ["--messages", "0"])
    assert result.exit_code == 2 and "0 messages of 4096 bytes" in result.output


@pytest.mark.slow
def test_command():
    """Few messages of one NIC at 64 bits; cycles of both are those that this much data takes."""
    result = CliRunner().invoke(
        simspeed, ["--one", "--width", "64", "-n", "8", "-s", "2000", "--json", "-"]
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    least = 8 * 2000 // 8
    for name in ("compiled", "cocotbext_axi"):
        speed = facts[name]
        assert speed["bytes_verified"] == 8 * 2000 and least < speed["cycles"] < 40 * least
        assert speed["cycles_per_s"] == pytest.approx(speed["cycles"] / speed["seconds"])
    assert facts["cycles_ratio"] > 1.5 and facts["time_ratio"] > 1.5
