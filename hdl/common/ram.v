// Simple dual-port RAM, one write and one registered read, for memories too large to be printed
// word by word into generated Verilog. Maps to block RAM or UltraRAM. Contents start at zero, as
// those of a device's own RAM do: synthesis is not told, it would take every word for itself.
// A read in the cycle in which the same row is written returns the row as it was; with ANY it need
// not, as ram.py forwards that row or nobody reads it then: not every device's RAM does so by itself.
module rocinante_ram #(
    parameter WIDTH = 8,
    parameter DEPTH = 16,
    parameter INDEX = 4,
    // verilator lint_off UNUSEDPARAM
    parameter ANY = 0,  // of attributes, these two
    parameter STYLE = "auto"
    // verilator lint_on UNUSEDPARAM
) (
    input  wire             clk,
    input  wire             write_enable,
    input  wire [INDEX-1:0] write_index,
    input  wire [WIDTH-1:0] write_row,
    input  wire             read_enable,
    input  wire [INDEX-1:0] read_index,
    output reg  [WIDTH-1:0] read_row
);
  (* no_rw_check = ANY, ram_style = STYLE *)
  reg [WIDTH-1:0] rows[0:DEPTH-1];

  initial read_row = {WIDTH{1'b0}};
`ifndef SYNTHESIS
  integer i;
  initial for (i = 0; i < DEPTH; i = i + 1) rows[i] = {WIDTH{1'b0}};
`endif

  always @(posedge clk) begin
    if (write_enable) rows[write_index] <= write_row;
    if (read_enable) read_row <= rows[read_index];
  end
endmodule
