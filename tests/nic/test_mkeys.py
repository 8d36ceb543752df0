"""The whole NIC with indirect keys. T-K1 to T-K16; each bench has the name of its scenario."""

import pytest

from hdl.abi.enums import Access
from sim.guest.verbs import SGE, Interleaved, Mkey
from tests.nic.features import WIDTHS, play

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


@WIDTHS
@pytest.mark.parametrize("bench", ["mkeys", pytest.param("mkeys_rules", marks=pytest.mark.slow)])
def test_mkeys(bench, width):
    play(bench, width)
