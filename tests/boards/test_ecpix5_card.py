"""The ECPIX-5's card from the program on the PC to the wire: firmware and driver over its UART."""

import pytest

from sim.rtl.build import Rtl, bench

#: Cycles of a bit of the UART, fewer than on the board: it is most of the simulated time.
DIVISOR = 4
RTL = Rtl("boards.ecpix5.card:Ecpix5Card", {"divisor": DIVISOR}, name="ecpix5_card")


@pytest.mark.slow  # a model of the whole card, and minutes of UART
def test_sends_over_uart_and_wire():
    bench(RTL, test_module="tests.boards.bench_ecpix5_card", timeout_s=1800)
