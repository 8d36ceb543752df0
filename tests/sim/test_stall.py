"""The report about a simulation that hangs: probes found in Verilog, read from the model."""

from types import SimpleNamespace

import pytest

from sim.bench.probes import probes
from sim.bench.stall import stall_report
from sim.bench.testbench import build
from sim.rtl.build import Rtl, run
from sim.rtl.readable import Probe, load, rules
from tests.sim.bench_stall import CONFIG
from tests.sim.parts import Servers

TEXT = r"""
/* Generated */
module top(i__valid, clk);
  input i__valid;
  \top.room  room (
    .clk(clk)
  );
endmodule

module \top.room (rst, i__valid, i__ready, \o__valid$3 , \o__ready$41
, x__valid, x__ready, \x__ready$2 , lone__valid);
  (* enum_base_type = "QpState" *)
  (* enum_value_0 = "RESET" *)
  (* enum_value_1 = "INIT" *)
  wire \row.state ;
  (* enum_value_00 = "CLEAR" *)
  (* enum_value_01 = "IDLE" *)
  (* enum_value_10 = "READ" *)
  reg [1:0] access_state = 2'h0;
  reg [1:0] \state_state$7  = 2'h2;
  reg [5:0] credit = 6'h20;
  reg [5:0] other = 6'h20;
  reg [31:0] pending = 32'd7;
  wire [3:0] level;
  reg [3:0] \$5 ;
endmodule

module \top.room.fifo$12 (clk);
  reg [3:0] level = 4'h0;
  reg full_state = 1'h1;
endmodule
"""


def test_probes():
    room, fifo = ("room",), ("room", "fifo$12")
    found = probes(TEXT)
    assert found == (
        Probe(room, "access_state", 0, {0: "CLEAR", 1: "IDLE", 2: "READ"}),
        Probe(room, "state_state$7", 2),
        Probe(room, "credit", 32),
        Probe(room, "pending", 7),
        Probe(room, "i__valid", ready="i__ready"),
        Probe(room, "o__valid$3", ready="o__ready$41"),
        Probe(fifo, "level"),
        Probe(fifo, "full_state", 1),
    )
    lines = rules(found, "top")
    assert lines[0] == 'public_flat_rd -module "top.room" -var "access_state"'
    assert lines[5:8] == [
        'public_flat_rd -module "top.room" -var "i__ready"',
        'public_flat_rd -module "top.room" -var "o__valid*3"',
        'public_flat_rd -module "top.room" -var "o__ready*41"',
    ]
    with pytest.raises(ValueError, match="No module"):
        probes("// nothing")


def test_descriptions():
    access, number, credit, _, stream, *_ = probes(TEXT)
    assert access.describe(0) == "access in CLEAR"  # not done with it is not at rest
    assert access.describe(1) == ""
    assert access.describe(2) == "access in READ"
    assert access.describe(3) == "access in 3"
    assert number.describe(2) == "" and number.describe(1) == "state_state 1"
    assert credit.describe(32) == "" and credit.describe(31) == "credit 31"
    assert stream.describe(1, 0) == "i waits"
    assert stream.describe(1, 1) == stream.describe(0, 0) == stream.describe(0, 1) == ""


def test_no_list_outside_a_simulation():
    assert load() == []


def test_report_without_models():
    """A host that is written in Python has neither a number nor statistics; the card is told of."""
    dut = SimpleNamespace(_get={"nic0": SimpleNamespace()}.get)
    testbench = SimpleNamespace(dut=dut, hosts=[SimpleNamespace()], wires=[])
    assert stall_report(testbench) == "Card 0\n  built without probes"


def test_report_of_a_card_that_hangs():
    model = build(Rtl(Servers, {"depth": 8}), config=CONFIG, nics=2)
    bench = "tests.sim.bench_stall"
    run(model, test_module=bench, testcase=["names_what_hangs", "only_probes_can_be_read"])
    with pytest.raises(AssertionError) as caught:
        run(model, test_module=bench, testcase="inside_of_a_deadline")
    text = str(caught.value)
    assert "Deadline of 100 cycles has passed" in text
    assert "front: serve in AWAIT_GRANT" in text and "front.queue: level 8" in text
