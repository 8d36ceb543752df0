"""The engines in Verilator at the narrowest and the widest data path."""

from __future__ import annotations

from itertools import product

import pytest

from sim.rtl.build import Rtl, bench

PARTS = (
    "send",
    "send_errors",
    "send_mixed",
    "in_order",
    "recv",
    "completion",
    "completion_errors",
    "arming",
    "control",
    "events",
)


#: The engines at 512 bits can have packed rings as well, and one model serves both kinds.
TOPS = {64: "QueuesTop", 512: "PackedTop"}


@pytest.mark.parametrize(
    ("part", "width"),
    [
        pytest.param("send", 64, marks=pytest.mark.slow),
        ("send", 512),
        *product(PARTS[1:], (64,)),
        *(pytest.param(part, 512, marks=pytest.mark.slow) for part in PARTS[1:]),
        ("recv_mixed", 64),  # what is fetched ahead, and for whom: no width changes that
    ],
)
def test_engine(part: str, width: int) -> None:
    bench(
        Rtl(f"tests.queues.top:{TOPS[width]}", {"width": width}),
        test_module=f"tests.queues.bench_{part}",
        timeout_s=300,
    )


@pytest.mark.parametrize("width", [pytest.param(64, marks=pytest.mark.slow), 512])
def test_packed_rings(width: int) -> None:
    """Whole cards with packed rings have 64 bits (tests/nic)."""
    bench(
        Rtl("tests.queues.top:PackedTop", {"width": width}),
        test_module="tests.queues.bench_packed",
        timeout_s=300,
    )


def test_receive_ahead() -> None:
    """Which WQEs are fetched ahead, and for whom: no width changes that. How fast that is would be
    bounded by the host's reads at 64 bits."""
    bench(
        Rtl("tests.queues.top:RecvTop", {"width": 512}),
        test_module="tests.queues.bench_recv_ahead",
        timeout_s=300,
    )


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
def test_many_completions(width: int) -> None:
    """Which CQs have a place for their entries: no width changes that."""
    bench(
        Rtl("tests.queues.top:CompletionTop", {"width": width}),
        test_module="tests.queues.bench_completion_many",
        timeout_s=300,
    )


def test_control_queues_of_two_functions() -> None:
    bench(
        Rtl("tests.queues.top:ControlTop", {"width": 64}),
        test_module="tests.queues.bench_control_functions",
    )
