"""The receive side against its reference model: bench_receive.py, bench_unanswered.py."""

import pytest

from sim.rtl.build import Rtl, bench


@pytest.mark.parametrize("cases", ["receive", "unanswered"])
def test_receive(cases):
    bench(
        Rtl("tests.transport.receive_side:ReceiveSide"),
        test_module=f"tests.transport.bench_{cases}",
        timeout_s=300,
    )
