"""The whole NIC with MEMCPY, and without it.

T-C1 to T-C6 of the work-request builders, T-C7 being with DC; each bench has the name of its
scenario.
"""

from hdl.abi.enums import WrOpcode
from sim.guest.verbs import SGE, SendWR
from sim.rtl.build import run
from tests.nic.features import WIDTHS, play
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


@WIDTHS
def test_memcpy(width):
    play("memcpy", width)


def test_card_without_it():
    run(
        model(64),
        test_module="tests.nic.bench_without_memcpy",
        extra_env={"ROCINANTE_WIDTH": "64"},
        timeout_s=600,
    )
