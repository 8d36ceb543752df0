"""The whole NIC with indirect keys. T-K1 to T-K16; each bench has the name of its scenario."""

from dataclasses import replace

import pytest

from hdl.abi.enums import Access
from sim.bench import testbench
from sim.guest.verbs import SGE, Interleaved, Mkey
from sim.rtl.build import run
from tests.nic.bench_mkeys_functions import CONFIG
from tests.nic.card import MKEYS

#: The vectors of the specification, as posted: entries of 8 bytes at 10000h and 10040h; K3, three
#: rows of 8 bytes at 50000h and 50040h, with 2 bytes to skip.
LIST = """
    00000000 02000000 21000000 f400000000000000 00000000 31000000 07310000 0f000000
    00000000 02000000
"""
ROWS = """
    00000000 02000000 22000000 f500000000000000 00000000 31000000 07310000 0f000000
    03000000 02000000
"""
LIST_SLOTS = "0000010000000000 08000000 012b0000 4000010000000000 08000000 012b0000"
ROWS_SLOTS = """
    0000050000000000 08000000 012b0000 02000000 000000000000000000000000
    4000050000000000 08000000 012b0000 02000000 000000000000000000000000
"""


def test_vectors():
    every = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
    key = Mkey(None, 0x31, 0x3107, 2)
    wr = key.list_wr([SGE(0x10000, 8, 0x2B01), SGE(0x10040, 8, 0x2B01)], every, wr_id=0xF4)
    assert wr.pack(None) == bytes.fromhex(LIST) + bytes(31) + bytes.fromhex(LIST_SLOTS)
    rows = [Interleaved(at, 8, 2, 0x2B01) for at in (0x50000, 0x50040)]
    wr = key.interleaved_wr(rows, 3, every, wr_id=0xF5)
    assert wr.pack(None) == bytes.fromhex(ROWS) + bytes(31) + bytes.fromhex(ROWS_SLOTS)


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["mkeys", "mkeys_rules"])
def test_mkeys(bench, width):
    run(
        testbench.build(config=replace(MKEYS, width=width)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


def test_two_functions():
    run(
        testbench.build(config=CONFIG, fast=False),
        test_module="tests.nic.bench_mkeys_functions",
        timeout_s=600,
    )
