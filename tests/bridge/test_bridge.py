"""The bridge at the end of a UART, between a card of Python and the PC side of the protocol."""

import pytest

from hdl.bridge.bridge import Bridge
from hdl.bridge.memory import HostRam
from hdl.bridge.uart import UartRx, UartTx
from sim.rtl.build import Rtl, bench, lint

SIZE, DIVISOR = 8192, 4
RTL = Rtl("hdl.bridge.bridge:Bridge", {"size": SIZE, "divisor": DIVISOR}, name="bridge")


def test_bridge():
    bench(RTL, test_module="tests.bridge.bench_bridge")


def test_lint():
    lint(RTL)


@pytest.mark.parametrize("size", [0, 2048, 5000])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match=f"at least 4096 bytes, not {size}"):
        HostRam(size=size)


def test_bad_divisors():
    for uart in (UartRx, UartTx):
        with pytest.raises(ValueError, match="at least 4 cycles, not 3"):
            uart(divisor=3)
    assert Bridge(size=SIZE, divisor=4)
