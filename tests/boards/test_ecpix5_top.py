"""The ECPIX-5's top in Verilator, around a card that sends back: clocks, resets, pins."""

import pytest

from boards.ecpix5.top import Ecpix5Top
from sim.board import model
from sim.rtl.build import BuildError, run
from tests.boards.echo import Echo

BENCH = "tests.boards.bench_ecpix5_top"


@pytest.fixture(scope="module")
def text():
    return model.verilog(Ecpix5Top(Echo()))


def test_frames_and_bytes_pass_the_pins(text):
    run(model.build(text), test_module=BENCH)


def test_a_pll_of_another_frequency_does_not_lock(text):
    assert text.count(".CLKFB_DIV(32'd5)") == 1
    broken = text.replace(".CLKFB_DIV(32'd5)", ".CLKFB_DIV(32'd6)")
    with pytest.raises(AssertionError, match="does its PLL lock"):
        run(model.build(broken), test_module=BENCH)


def test_a_port_of_another_name_does_not_compile(text):
    with pytest.raises(BuildError, match="eth_rgmii_0__tx_ctl__io"):
        model.build(text.replace("eth_rgmii_0__tx_ctl__io", "eth_rgmii_0__tx_clt__io"))
