"""The whole NIC with MEMCPY, and without it.

T-C1 to T-C6 of the work-request builders, T-C7 being with DC; each bench has the name of its
scenario.
"""

import pytest

from hdl.abi.enums import WrOpcode
from hdl.config import NicConfig
from sim.bench import testbench
from sim.guest.verbs import SGE, SendWR
from sim.rtl.build import run
from tests.nic.bench_memcpy_functions import CONFIG
from tests.nic.test_nic import model

#: The vector of the specification: destination {20000h, 4096, 2C01h}, source {10000h, 4096, 2B01h}.
VECTOR = bytes.fromhex(
    "02000000 02000000 23000000 f600000000000000 00000000"
    + "00" * 51
    + "0000020000000000 00100000 012c0000 0000010000000000 00100000 012b0000"
)


def test_vector():
    wr = SendWR(0xF6, WrOpcode.MEMCPY)
    wr.set_wr_memcpy(SGE(0x20000, 4096, 0x2C01), SGE(0x10000, 4096, 0x2B01))
    assert wr.pack(None) == VECTOR


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
def test_memcpy(width):
    config = NicConfig(width=width, placement=True, persistence=True, memcpy=True)
    run(
        testbench.build(config=config),
        test_module="tests.nic.bench_memcpy",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


def test_card_without_it():
    run(
        model(64),
        test_module="tests.nic.bench_without_memcpy",
        extra_env={"ROCINANTE_WIDTH": "64"},
        timeout_s=600,
    )


def test_two_functions():
    run(
        testbench.build(config=CONFIG, fast=False),
        test_module="tests.nic.bench_memcpy_functions",
        timeout_s=600,
    )
