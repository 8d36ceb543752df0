"""Columns of memories that are taken out of a netlist: which ones, and that nobody misses them."""

import pytest

from boards.ecpix5.card import CONFIG
from sim.make.boards.columns import narrow
from sim.rtl.verilog import Rtl, sources
from tests.boards import netlists

#: Eight columns, of which four are read.
SOURCE = """
module top(input clk, input [1:0] enable, input [1:0] to, from, other, input [3:0] data,
           output [4:0] near, output [1:0] far);
    reg [7:0] rows[0:3];
    reg [7:0] row;
    {initial}
    // Columns 0 and 4 are alike, and so are 1 and 5 but for who may write them.
    always @(posedge clk) begin
        if (enable[0]) rows[to][4:0] <= {data[0], data};
        if (enable[1]) rows[to][7:5] <= {data[3:2], data[1]};
        row <= rows[from];
    end
    assign near = {row[5:4], row[1:0], row[0] ^ row[4]};
    assign far = {rows[other][4], rows[other][1]};
endmodule
"""
DIFFERENT = "initial begin rows[0] = 8'h10; rows[1] = 0; rows[2] = 0; rows[3] = 0; end"
MAKE = """
read_verilog -sv top.v
hierarchy -top top
proc
opt
opt_expr -mux_undef
memory -nomap
opt_clean
write_json before.json
"""
#: From memories of zeros on, six cycles with any inputs: long enough to fill and read four rows.
PROVE = """
read_json before.json
flatten
memory_map
opt_clean
rename top before
design -stash before
read_json after.json
flatten
memory_map
opt_clean
rename top after
design -stash after
design -copy-from before before
design -copy-from after after
miter -equiv -flatten before after both
hierarchy -top both
sat -verify -prove trigger 0 -seq 6 -set-init-zero both
"""


def made(folder, initial="", source=SOURCE):
    return netlists.made(folder, source.replace("{initial}", initial), MAKE)


def proven(folder, design):
    """Whether ``design`` does what the one before did."""
    return netlists.proven(folder, design, PROVE)


@pytest.mark.parametrize("initial,kept", [("", 3), (DIFFERENT, 4)], ids=["alike", "different"])
def test_columns_that_nobody_needs_go(tmp_path, initial, kept):
    """Unread ones, and of two alike the second; first contents make them different."""
    design = made(tmp_path, initial)
    assert narrow(design) == {"top rows": (8, kept)}
    assert proven(tmp_path, design)
    assert narrow(design) == {}


#: Of a memory in a module of its own, the one above reads two columns.
APART = """
module part(input clk, input [1:0] to, from, input [3:0] data, output reg [3:0] row);
    reg [3:0] rows[0:3];
    always @(posedge clk) begin
        rows[to] <= data;
        row <= rows[from];
    end
endmodule
module top(input clk, input [1:0] to, from, input [3:0] data, output [1:0] out);
    wire [3:0] row;
    part part(clk, to, from, data, row);
    assign out = row[2:1];
endmodule
"""


def test_columns_that_the_module_above_does_not_read_go(tmp_path):
    design = made(tmp_path, source=APART)
    assert narrow(design) == {"part rows": (4, 2)}
    assert proven(tmp_path, design)


#: Two FIFOs' memories with a register between them, of which three columns come out.
CHAIN = """
module top(input clk, input enable, input [1:0] to, from, input [7:0] data, output [2:0] out);
    reg [7:0] rows[0:3], later[0:3];
    reg [7:0] row, between, last;
    always @(posedge clk) begin
        rows[to] <= data;
        row <= rows[from];
        if (enable) between <= from[0] ? row : ~row;
        later[to] <= between;
        last <= later[from];
    end
    assign out = last[6:4];
endmodule
"""


def test_columns_go_through_registers_and_memories(tmp_path):
    design = made(tmp_path, source=CHAIN)
    assert narrow(design) == {"top rows": (8, 3), "top later": (8, 3)}
    assert proven(tmp_path, design)


#: Of four columns two are never written with anything but zeros.
ZEROS = """
module top(input clk, clear, enable, input [1:0] to, from, input [3:0] data, output reg [3:0] row);
    reg [3:0] rows[0:3];
    {initial}
    wire [3:0] given = clear ? 4'b0000 : {2'b00, data[1:0]};
    always @(posedge clk) begin
        if (enable) rows[to] <= given;
        row <= rows[from];
    end
endmodule
"""


@pytest.mark.parametrize("initial,kept", [("", 2), (DIFFERENT.replace("8'h10", "4"), 3)])
def test_columns_of_zeros_are_constants(tmp_path, initial, kept):
    """Whatever multiplexer the zeros come through; one that begins with something else is not."""
    design = made(tmp_path, initial, ZEROS)
    assert narrow(design) == {"top rows": (4, kept)}
    assert proven(tmp_path, design)


def test_the_proof_finds_a_wrong_column(tmp_path):
    design = made(tmp_path)
    narrow(design)
    read = design["modules"]["top"]["cells"]["rows"]["connections"]["RD_DATA"]
    read[0], read[1] = read[1], read[0]
    assert not proven(tmp_path, design)


def memory(written):
    """A memory of two columns, of Yosys' ``write_json``; ``written``: what it is written with."""
    return {
        "type": "$mem_v2",
        "parameters": {"WIDTH": "10", "INIT": "x" * 4}
        | dict.fromkeys(("RD_ARST_VALUE", "RD_SRST_VALUE", "RD_INIT_VALUE"), "xx"),
        "port_directions": {"RD_DATA": "output", "WR_DATA": "input", "WR_EN": "input"},
        "connections": {"RD_DATA": [2, 3], "WR_DATA": written, "WR_EN": [6, 6]},
    }


def test_a_memory_that_nobody_reads_keeps_a_column():
    """Yosys takes the memory out, and does not take one without width."""
    module = {"attributes": {"top": "1"}, "ports": {}, "netnames": {}}
    design = {"modules": {"top": module | {"cells": {"rows": memory([4, 5])}}}}
    assert narrow(design) == {"top rows": (2, 1)}


def test_a_constant_has_no_first_value():
    """Yosys refuses one that says so."""
    row = {"bits": [2, 3], "attributes": {"init": "00"}}
    module = {
        "attributes": {"top": "1"},
        "ports": {"row": {"direction": "output", "bits": [2, 3]}},
        "netnames": {"row": row},
        "cells": {"rows": memory(["0", 5])},
    }
    assert narrow({"modules": {"top": module}}) == {"top rows": (2, 1)}
    assert row == {"bits": ["0", 3], "attributes": {"init": "0x"}}


def test_a_short_address_takes_no_columns_in_the_rows_of_queues(tmp_path):
    """Three addresses, of which the card of 24 bits keeps no more, in each copy of the rows."""
    assert CONFIG.address_bits == 24
    queues = Rtl("hdl.host.virtio_queues:VirtioQueues", {"config": CONFIG}, "top")
    text = "".join(path.read_text() for path in sources(queues))
    design = netlists.made(tmp_path, text, MAKE.replace("proc\n", "proc\nflatten\n"))
    copies = narrow(design).values()
    assert len(copies) == 2 and all(before - after >= 3 * 40 for before, after in copies)
