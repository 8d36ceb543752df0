"""Carry chains that are shortened: which ones, and that sums stay what they are."""

import pytest

from sim.make.boards.carries import FIRST_CARRY, shorten
from tests.boards import netlists

#: Sums and differences, a sum whose carry is read, and one that begins with a carry.
SOURCE = """
module top(input [{top}:0] a, b, input carry, output [{top}:0] sum, less, output [{width}:0] wide,
           output [{top}:0] more, output below);
    assign sum = a + b, less = (a & 3) - b, wide = a + b, more = a + b + carry, below = a < b;
endmodule
"""
MAKE = """
read_verilog -sv top.v
synth_ecp5 -top top -noabc9 -nowidelut
select top
write_json -selected before.json
"""
PROVE = """
read_json before.json
rename top before
read_json after.json
rename top after
read_verilog -overwrite +/ecp5/cells_sim.v
miter -equiv before after both
hierarchy -top both
proc
flatten
sat -verify -prove trigger 0 both
"""


def made(folder, width):
    text = SOURCE.replace("{top}", str(width - 1)).replace("{width}", str(width))
    return netlists.made(folder, text, MAKE)


def proven(folder, design):
    """Whether ``design`` does what the one before did, with any carry where none is connected."""
    for cell in design["modules"]["top"]["cells"].values():
        ports = cell["connections"]
        cell["connections"] = {name: bits for name, bits in ports.items() if bits != ["x"]}
    return netlists.proven(folder, design, PROVE)


def carries(design):
    return [cell for cell in design["modules"]["top"]["cells"].values() if cell["type"] == "CCU2C"]


@pytest.mark.parametrize("width,begun", [(5, 2), (8, 1), (9, 2)])
def test_chains_are_shorter_and_the_same(tmp_path, width, begun):
    """Chains with a free half take their first carry in; no net takes a carry that is not read."""
    design = made(tmp_path, width)
    before = len(carries(design))
    opened, moved = shorten(design["modules"]["top"])
    assert moved == begun <= opened and len(carries(design)) == before
    begin = [cell["connections"]["CIN"] for cell in carries(design)]
    assert begin.count(["x"]) == begun
    assert shorten(design["modules"]["top"]) == (0, 0)
    assert proven(tmp_path, design)


@pytest.mark.parametrize("first", ["0", "1"])
def test_the_proof_finds_a_wrong_first_carry(tmp_path, first):
    design = made(tmp_path, 5)
    shorten(design["modules"]["top"])
    (cell,) = (
        cell for cell in carries(design) if cell["parameters"]["INIT0"] == FIRST_CARRY[first]
    )
    cell["parameters"]["INIT0"] = FIRST_CARRY["10"[int(first)]]
    assert not proven(tmp_path, design)
