"""Small designs whose logic depth is known by hand, and how they get into Yosys."""

from pathlib import Path

from sim.make.sta.cells import Cell
from sim.make.sta.netlist import Netlist, read
from sim.make.synth import tool

ADDER = """
module adder(input clk, input [31:0] a, b, output reg [31:0] s);
  reg [31:0] x = 0, y = 0;
  always @(posedge clk) begin x <= a; y <= b; s <= x + y; end
endmodule
"""

PARITY = """
module parity(input clk, input [5:0] i, output reg o);
  reg [5:0] x = 0;
  always @(posedge clk) begin x <= i; o <= ^x; end
endmodule
"""

BLOCK_RAM = """
module block_ram(input clk, input write, input [9:0] to, from, input [35:0] i, output reg o);
  reg [35:0] rows[0:1023];
  reg [35:0] row;
  always @(posedge clk) begin
    if (write) rows[to] <= i;
    row <= rows[from];
    o <= ^row;
  end
endmodule
"""

LUT_RAM = """
module lut_ram(input clk, input write, input [4:0] to, from, input [7:0] i, output reg [7:0] o);
  reg [7:0] rows[0:31];
  reg [4:0] index = 0;
  always @(posedge clk) begin
    index <= from;
    if (write) rows[to] <= i;
    o <= rows[index];
  end
endmodule
"""

APART = """
module \\apart.first (input clk, input [5:0] i, output y, output reg [7:0] spare);
  reg [5:0] x;
  assign y = ^x;
  always @(posedge clk) begin x <= i; spare <= spare + 1; end
endmodule
module \\apart.second (input clk, y, input [4:0] i, input [7:0] mask, output reg [7:0] o);
  reg [4:0] x;
  always @(posedge clk) begin x <= i; o <= {8{y ^ ^x}} & mask; end
endmodule
module apart(input clk, input [10:0] i, output [7:0] o);
  wire y;
  \\apart.first first(.clk(clk), .i(i[5:0]), .y(y));
  \\apart.second second(.clk(clk), .y(y), .i(i[10:6]), .mask(8'h81), .o(o));
endmodule
"""

DEEP = """
module deep(input clk, write, input [13:0] to, index, input [71:0] data, output reg [71:0] row);
  (* no_rw_check *) reg [71:0] rows [0:16383];
  always @(posedge clk) begin
    if (write) rows[to] <= data;
    row <= rows[index];
  end
endmodule
"""
NARROW = DEEP.replace("deep", "narrow").replace("71:0", "13:0")
ALONE = DEEP.replace("deep", "alone").replace("13:0", "11:0").replace("16383", "4095")
SINGLE_PORT = """
module single_port(input clk, input write, input [8:0] to, input i, output o);
  reg rows[0:511];
  reg [8:0] index = 0;
  assign o = rows[index];
  always @(posedge clk) begin
    index <= to;
    if (write) rows[index] <= i;
  end
endmodule
"""

LOOP = """
module loop(input set, reset, output q);
  wire not_q;
  assign q = ~(reset | not_q);
  assign not_q = ~(set | q);
endmodule
"""

#: A register of two elements, as the generated Verilog names them.
ARRAY = r"""
module array(input clk, input write, input [1:0] i, output [3:0] rows);
  reg [1:0] \rows[0]  = 0;
  reg [1:0] \rows[1]  = 0;
  assign rows = {\rows[1] , \rows[0] };
  always @(posedge clk) if (write) begin
    \rows[0]  <= i ^ \rows[1] ;
    \rows[1]  <= i & rows[1:0];
  end
endmodule
"""


#: A register in front of a module, and one behind it.
AROUND = r"""
module \around.inside (input clk, input [3:0] a, output reg [3:0] b = 0);
  always @(posedge clk) b <= a * a;
endmodule
module around(input clk, input [3:0] i, output reg [3:0] o = 0);
  reg [3:0] before = 0;
  wire [3:0] after;
  \around.inside inside(.clk(clk), .a(before), .b(after));
  always @(posedge clk) begin
    before <= i;
    o <= after;
  end
endmodule
"""


def synthesised(text: str, top: str, family: str, folder: Path) -> Netlist:
    """Run Yosys on one module."""
    source = folder / "in" / f"{top}.sv"
    source.parent.mkdir()
    source.write_text(text)
    return read(tool.synthesise([source], top, family, folder).read_bytes(), top)


def ff(name: str, d: int | str, q: int) -> Cell:
    return Cell(name, "FDRE", {"C": [0], "CE": ["1"], "R": ["0"], "D": [d]}, {"Q": [q]})


def lut(name: str, inputs: list[int], output: int) -> Cell:
    pins = {f"I{pin}": [net] for pin, net in enumerate(inputs)}
    return Cell(name, f"LUT{len(inputs)}", pins, {"O": [output]})


def carry4(name: str, chain: int | str, select: list, data: list, o: list, co: list) -> Cell:
    inputs = {"CI": [chain], "CYINIT": ["0"], "S": select, "DI": data}
    return Cell(name, "CARRY4", inputs, {"O": o, "CO": co})


def netlist(*cells: Cell, inputs=None, outputs=None, names=None) -> Netlist:
    return Netlist("top", [*cells], {"clk": [0], **(inputs or {})}, outputs or {}, names or {})
