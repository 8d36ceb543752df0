"""Mutants are made, chosen, run and proved as mutants.py says; a sample of them is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.rtl import build
from tests.faults.mutants import ROOMS, Room, Tried, campaign, share
from tests.faults.mutate import Mutant, equivalent, mutated

#: ``part`` adds; what it does with the carry can never be seen, nor the upper half of what it
#: keeps. Nobody looks at its port ``p``.
SOURCE = r"""
module top(input clk, input [3:0] a, b, output [3:0] o);
  \top.part part(.clk(clk), .a(a), .b(b), .o(o));
endmodule
module \top.part (input clk, input [3:0] a, b, output [3:0] o, p);
  wire [4:0] wide = a + b;
  wire carry = wide[4] & (a == 4'd15) & (b == 4'd0);  // never
  reg [7:0] kept = 0;
  always @(posedge clk) kept <= {a | b, wide[3:0] ^ {4{carry}}};
  assign o = kept[3:0];
  assign p = a & b;
endmodule
"""

#: ``stuck`` is 0 in all cycles, although a 1 in it could stay. ``hidden`` is looked at only when it
#: is 0.
CYCLES = r"""
module top(input clk, input [3:0] a, output [3:0] o);
  \top.part part(.clk(clk), .a(a), .o(o));
endmodule
module \top.part (input clk, input [3:0] a, output [3:0] o);
  reg stuck = 0, shows = 0;
  reg [3:0] hidden = 0, kept = 0;
  always @(posedge clk) begin
    stuck <= stuck & a[0];
    shows <= ~a[3];
    hidden <= a[3] ? a ^ 4'd5 : 4'd0;
    kept <= a ^ {4{stuck & a[1]}};
  end
  assign o = kept ^ (hidden & {4{shows}});
endmodule
"""


#: Its model is built, and its bench runs, in seconds.
SMALL = Room(
    "control",
    "control_top",
    {"control": ("tests/queues/test_queues.py::test_control_queues_of_two_functions",)},
    proof_s=0,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.sv"
    path.write_text(SOURCE)
    return path


def test_mutants_are_chosen_by_a_plusarg_and_sampled_by_a_seed(source: Path) -> None:
    text, commands, mutants = mutated(source, "top", ["part"], 12, seed=3)
    assert [one.number for one in mutants] == list(range(1, 13))
    assert {one.module for one in mutants} == {"top.part"} and len(
        {one.where for one in mutants}
    ) > 6
    assert mutated(source, "top", ["part"], 12, seed=3) == (text, commands, mutants)
    assert mutated(source, "top", ["part"], 12, seed=4)[1] != commands
    head = text.partition("endmodule")[0]
    assert '$value$plusargs("mutant=%d"' in head
    assert "rocinante_mutant" not in head.partition(";")[0]  # no port of the top module


def test_what_no_input_can_tell_is_equivalent(source: Path) -> None:
    _, commands, mutants = mutated(source, "top", ["part"], 25, seed=1)
    equal = equivalent(source, "top", commands, mutants)
    assert 0 < len(equal) < len(mutants)
    for one in mutants:
        if one.wire.startswith("o["):
            assert one.number not in equal
        # What nobody reads, in the module and outside of it.
        if one.wire.startswith("p[") or (one.cell.startswith("$or") and one.port.startswith("Y")):
            assert one.number in equal


def test_what_no_cycle_shows_is_equivalent(tmp_path: Path) -> None:
    """States that are never reached do not count."""
    source = tmp_path / "source.sv"
    source.write_text(CYCLES)
    _, commands, mutants = mutated(source, "top", ["part"], 25, seed=1)
    equal = equivalent(source, "top", commands, mutants)
    # Without a 1 in ``stuck`` the conjunction behind it is 0; what ``shows`` shows is 0.
    never = [one for one in mutants if one.cell == "$and$7" or one.wire == "shows[0]"]
    never = [one for one in never if one.mode == "const0"]
    assert len(never) > 1 and equal.issuperset(one.number for one in never)
    assert not any(one.number in equal for one in mutants if one.wire.startswith(("o[", "kept[")))


def test_share_leaves_out_what_is_equivalent() -> None:
    mutant = Mutant(1, "inv", "top.part", "$add$1", "Y[0]", "")
    results = ["caught"] * 9 + ["survived"] + ["equivalent"] * 5
    assert share([Tried("room", mutant, one) for one in results]) == 0.9


def test_every_part_of_a_room_is_one_and_its_tests_are_there() -> None:
    for room in ROOMS:
        assert room.parts
        for tests in room.parts.values():
            for test in tests:
                assert Path(build.env.REPO, test.partition("::")[0]).exists()


def test_sample_is_caught(tmp_path: Path) -> None:
    """Eight mutants of a small top, and what is recorded of them. Proofs have tests of their own.

    Each change of the gateware draws other ones. Of eight with a chance of 3/8 each to be caught,
    none is in one of 40 draws. How many of 200 are is the whole campaign's matter.
    """
    record = tmp_path / "mutants.json"
    shown: list[str] = []
    tried = campaign(rooms=[SMALL], count=8, seed=1, record=record, limit=None, show=shown.append)
    assert len(tried) == 8 and share(tried) >= 1 / 8
    assert all(one.by for one in tried if one.result == "caught")
    assert record.read_text().count('"result"') == 8
