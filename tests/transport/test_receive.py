"""The receive side against its reference model (bench_receive.py holds the cases)."""

from sim.rtl.build import Rtl, bench


def test_receive():
    bench(
        Rtl("tests.transport.receive_side:ReceiveSide"),
        test_module="tests.transport.bench_receive",
        timeout_s=300,
    )
