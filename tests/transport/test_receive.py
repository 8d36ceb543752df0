"""The receive side against its reference model (bench_receive.py holds the cases)."""

from sim.rtl.build import bench


def test_receive():
    bench(
        factory="tests.transport.receive_side:ReceiveSide",
        test_module="tests.transport.bench_receive",
        timeout_s=300,
    )
