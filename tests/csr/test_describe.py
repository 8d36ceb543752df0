"""Descriptions and the firmware's map: plain Python."""

import doctest
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hdl.config import NicConfig
from hdl.csr import describe
from hdl.csr import map as csr_map
from hdl.csr.blocks import PAGES, TABLES, row_layout
from hdl.csr.describe import Access, Block, Field, Register, Window, const, ro, rw
from hdl.csr.map import CsrMap, row_map

ROOT = Path(__file__).parents[2]


def test_offsets_follow_each_other():
    block = Block(
        "one",
        9,
        (
            Register("a", (rw("low", 4), rw("high", 8, reset=3))),
            Register("b", (ro("value", 32),), offset=0x20),
            Window("c", 5, Access.RW),
            Register("d", (ro("value", 1),)),
        ),
    )
    assert [(at, item.name) for at, item in block.places()] == [
        (0, "id"),
        (4, "a"),
        (0x20, "b"),
        (0x40, "c"),  # aligned to its size, rounded up to a power of two
        (0x54, "d"),
    ]
    high = block.register("a").field("high")
    assert (high.low, high.mask, block.register("a").member("high")) == (4, 0xFF0, "a_high")
    assert block.register("b").member("value") == "b"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Field("f", 0, Access.RO), "1 to 32 bits, not 0"),
        (lambda: const("f", 4, 16), "cannot hold its value 16"),
        (lambda: Register("r", (ro("a", 20), ro("b", 13))), "'b' does not fit 'r' at bit 20"),
        (lambda: Register("r", (ro("a", 1), ro("a", 1))), "two fields of one name"),
        (lambda: Block("b", 1, (Register("r", ()), Register("r", ()))), "two items named 'r'"),
        (lambda: Block("b", 1, (Register("r", (), offset=0),)), "b.r cannot be at 0x0"),
        (lambda: Block("b", 1, (Register("r", (), offset=6),)), "b.r cannot be at 0x6"),
        (lambda: Block("b", 1, (Window("w", 1024, Access.RO),)), "needs 8192 bytes"),
    ],
)
def test_bad_descriptions(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_map():
    csr = CsrMap(NicConfig(), counter_names=("one", "two"))
    assert csr.address("core.id") == 0
    assert csr.address("mailbox.request", 63) - csr.address("mailbox.request") == 252
    assert csr.address("counters.two") == PAGES["counters"] * 4096 + 8
    assert csr.decode("command.arm_cq", csr.encode("command.arm_cq", cq=9, flags=1)) == {
        "cq": 9,
        "flags": 1,
    }
    for path in ("nothing.id", "core.nothing", "core"):
        with pytest.raises(KeyError):
            csr.address(path)
    with pytest.raises(ValueError, match="arm_cq.flags must fit 2 bits, not 4"):
        csr.encode("command.arm_cq", flags=4)
    with pytest.raises(ValueError, match="64 words, not a word 64"):
        csr.address("mailbox.request", 64)


@pytest.mark.parametrize("table", TABLES)
def test_rows_agree_with_the_gateware(table):
    """Packed by name here and by Amaranth there."""
    rng = random.Random(table)
    row = row_map(table)
    values = {  # 1 is a member of every enumeration
        name: rng.getrandbits(field.width) if field.width > 4 else 1
        for name, field in row.fields.items()
    }
    words = row.pack(values)
    assert row.unpack(words) == values
    number = sum(word << 32 * i for i, word in enumerate(words))
    assert number < 1 << row.bits
    assert sum(field.width for field in row.fields.values()) == row.bits
    if TABLES[table].row is None:
        return
    value = row_layout(table).from_bits(number)
    for name, expected in values.items():
        field = value
        for part in name.split("."):
            field = getattr(field, part)
        assert getattr(field, "value", field) == expected, name


def test_rows_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"qp_cfg has no field 'nothing' \(value 3\)"):
        row_map("qp_cfg").pack(nothing=3)
    with pytest.raises(ValueError, match="qp_cfg.pd must fit 16 bits, not 65536"):
        row_map("qp_cfg").pack(pd=65536)
    with pytest.raises(ValueError, match="has 1 words, not 2"):
        row_map("used").unpack([0, 0])


def test_firmware_needs_no_gateware():
    code = "import hdl.csr.map, sys; print(any(m.startswith('amaranth') for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", [describe, csr_map])
def test_examples(module):
    assert doctest.testmod(module).failed == 0
