"""The walk over a netlist: depths known by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.make.sta.cells import Cell
from sim.make.sta.levels import Walk
from sim.rtl.env import BuildError
from tests.make.sta import designs
from tests.make.sta.designs import carry4, ff, lut, netlist


def test_register_to_register() -> None:
    walk = Walk(
        netlist(
            ff("begin", "0", 1),
            lut("a", [1, 1], 2),
            lut("b", [2, 1], 3),
            lut("c", [3], 4),
            ff("end", 4, 5),
            names={1: "start[7]", 3: "middle", 5: "stop[2]"},
        ),
        "xcup",
    )
    (path,) = walk.levels("register").paths
    assert (path.levels, path.carry) == (3, 0)
    assert (path.start, path.end, path.names) == ("start[7]", "stop", ("start[7]", "middle"))
    assert walk.levels("ram").worst == 0
    assert walk.levels("register").above(2) == 1
    assert walk.levels("register").above(3) == 0


def test_bits_of_a_register_are_one_end() -> None:
    names = {1: "x", 10: "sum[0]", 11: "sum[1]"}
    walk = Walk(
        netlist(ff("x", "0", 1), lut("a", [1], 2), ff("s0", 1, 10), ff("s1", 2, 11), names=names),
        "xcup",
    )
    assert [(path.levels, path.end) for path in walk.levels("register").paths] == [(1, "sum")]


def test_enables_and_resets_are_ends_and_clocks_are_not() -> None:
    enabled = Cell("e", "FDRE", {"C": [3], "CE": [2], "R": [1], "D": ["0"]}, {"Q": [9]})
    walk = Walk(
        netlist(ff("x", "0", 1), lut("a", [1], 2), lut("b", [2], 3), enabled, names={9: "r"}),
        "xcup",
    )
    assert {path.end: path.levels for path in walk.levels("register").paths} == {
        "r.CE": 1,
        "r.R": 0,
    }


def test_ports_are_apart() -> None:
    walk = Walk(
        netlist(
            ff("x", 2, 3), lut("a", [1], 2), lut("b", [3], 4), lut("c", [1, 3], 5),
            inputs={"i": [1]}, outputs={"o": [4], "both": [5]}, names={1: "i", 3: "x"},
        ),
        "xcup",
    )  # fmt: skip
    assert not walk.levels("register").paths
    ends = {path.end: (path.levels, path.start) for path in walk.levels("port").paths}
    assert ends == {"x": (1, "port i"), "port o": (1, "x"), "port both": (1, "x")}


def test_carry_chain_block_by_block() -> None:
    """12 bits in three blocks of four, or of which two are one; the first bit's way is longest."""
    bits = range(12)
    cells = [ff(f"x{bit}", "0", 100 + bit) for bit in bits]
    cells += [lut(f"lut{bit}", [100 + bit, 100 + bit], 200 + bit) for bit in bits]
    for block in range(3):
        nets = [4 * block + bit for bit in range(4)]
        cells.append(
            carry4(
                f"carry{block}",
                400 + 4 * block - 1 if block else "0",
                [200 + net for net in nets],
                [100 + net for net in nets],
                [300 + net for net in nets],
                [400 + net for net in nets],
            )
        )
    cells += [ff(f"s{bit}", 300 + bit, 500 + bit) for bit in bits]
    # Listed in any order.
    whole = netlist(*reversed(cells), names={500 + bit: f"s{bit}" for bit in bits})
    depth = {path.end: path.levels for path in Walk(whole, "xcup").levels("register").paths}
    assert depth == {f"s{bit}": 2 + bit // 4 for bit in bits}
    paired = Walk(whole, "xcup", pairs=True).levels("register").paths
    assert {path.end: path.levels for path in paired} == {f"s{bit}": 2 + bit // 8 for bit in bits}
    assert paired[0].carry == 2


def test_carry_block_passes_upwards_only() -> None:
    """A low sum bit that feeds a high select input of the same block is no loop."""
    block = carry4("c", "0", [1, "0", "0", 6], ["0"] * 4, [5, 7, 8, 9], [10, 11, 12, 13])
    walk = Walk(
        netlist(ff("x", "0", 1), block, lut("a", [5], 6), ff("y", 9, 20), names={20: "y"}), "xcup"
    )
    assert walk.levels("register").worst == 3


def test_loop_is_refused_and_named() -> None:
    loop = netlist(
        ff("x", "0", 1), lut("a", [1, 4], 2), lut("b", [2], 3), lut("c", [3], 4),
        lut("after", [4], 5), names={2: "one", 3: "two", 4: "three"},
    )  # fmt: skip
    with pytest.raises(BuildError, match="combinational loop: ") as caught:
        Walk(loop, "xcup")
    named = str(caught.value).split("loop: ")[1].split(" -> ")
    assert named[0] == named[-1]
    assert "one two three" in " ".join(named[1:] * 2)


def test_memory_of_look_up_tables() -> None:
    """Read through, written at the end of a path: both from the same address."""
    ram = Cell("m", "RAM64X1S", {"WCLK": [0], "WE": [2], "A0": [3], "D": [1]}, {"O": [4]})
    walk = Walk(
        netlist(ff("x", "0", 1), lut("a", [1], 2), lut("b", [2], 3), ram, ff("y", 4, 5),
                names={1: "x", 5: "y"}),
        "xcup",
    )  # fmt: skip
    ends = {path.end: (path.levels, path.start) for path in walk.levels("register").paths}
    assert ends == {
        "y": (3, "x"),
        "RAM64X1S m": (0, "x"),
        "RAM64X1S m.WE": (1, "x"),
        "RAM64X1S m.A0": (2, "x"),
    }


def test_unknown_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="type not known here: NAND2"):
        Walk(netlist(Cell("u1", "NAND2", {"A": [1]}, {"Y": [2]})), "xcup")


@pytest.mark.parametrize(
    "text, top, family, worst, carry",
    [
        (designs.ADDER, "adder", "xcup", 9, 8),  # one look-up table, 32 / 4 blocks
        (designs.ADDER, "adder", "ecp5", 16, 16),  # 32 / 2 blocks, look-up tables inside
        (designs.PARITY, "parity", "xcup", 1, 0),  # six inputs
        (designs.LUT_RAM, "lut_ram", "xcup", 1, 0),
    ],
)
def test_mapped_by_yosys(
    text: str, top: str, family: str, worst: int, carry: int, tmp_path: Path
) -> None:
    found = Walk(designs.synthesised(text, top, family, tmp_path), family).levels("register")
    assert (found.worst, found.paths[0].carry) == (worst, carry)


def test_path_after_a_block_ram(tmp_path: Path) -> None:
    walk = Walk(designs.synthesised(designs.BLOCK_RAM, "block_ram", "xcup", tmp_path), "xcup")
    (path,) = walk.levels("ram").paths
    assert (
        2 <= path.levels <= 3
    )  # 36 bits in look-up tables of six; the mapper trades depth for cells
    assert path.start == "RAMB36E2 rows.0.0" and path.end == "o"
    assert not walk.levels("register").paths


def test_loop_in_verilog(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="^loop: combinational loop: .* -> "):
        Walk(designs.synthesised(designs.LOOP, "loop", "xcup", tmp_path), "xcup")
