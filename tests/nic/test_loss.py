"""Two whole cards on a bad network: ``bench_loss.py`` and ``bench_matrix.py`` beside this file."""

import pytest

from sim.rtl.build import run
from tests.nic.test_nic import model

#: What a beat's width can change.
WIDE = {
    "bench_loss": ["bad_networks/bad=1", "bad_networks/bad=7"],
    "bench_matrix": ["network/network=8", "receiver_not_ready"],
}


def play(bench: str, width: int, cases: list[str] | None) -> None:
    run(
        model(width),
        test_module=f"tests.nic.{bench}",
        testcase=cases,
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=1800,
    )


@pytest.mark.parametrize("bench", WIDE)
@pytest.mark.parametrize("width", [64, 512])
def test_loss(width: int, bench: str) -> None:
    """A part of random traffic over bad networks, of which campaigns draw more, and of each
    operation with each fault."""
    play(bench, width, WIDE[bench])


@pytest.mark.slow
@pytest.mark.parametrize("bench", WIDE)
@pytest.mark.parametrize("width", [64, 512])
def test_all_of_loss(width: int, bench: str) -> None:
    play(bench, width, None)
