"""The engines in Verilator at the narrowest and the widest data path."""

from __future__ import annotations

import pytest

from sim.rtl.build import bench

PARTS = (
    "send",
    "send_errors",
    "send_mixed",
    "in_order",
    "recv",
    "completion",
    "completion_errors",
    "control",
)


@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize("part", PARTS)
def test_engine(part: str, width: int) -> None:
    bench(
        factory="tests.queues.top:QueuesTop",
        params={"width": width},
        test_module=f"tests.queues.bench_{part}",
        timeout_s=300,
    )


@pytest.mark.parametrize("width", [64, 512])
def test_receive_ahead(width: int) -> None:
    bench(
        factory="tests.queues.top:RecvTop",
        params={"width": width},
        test_module="tests.queues.bench_recv_ahead",
        timeout_s=300,
    )


@pytest.mark.parametrize("width", [64, 512])
def test_many_completions(width: int) -> None:
    bench(
        factory="tests.queues.top:CompletionTop",
        params={"width": width},
        test_module="tests.queues.bench_completion_many",
        timeout_s=300,
    )
