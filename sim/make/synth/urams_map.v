// A column of UltraRAMs (see urams.txt) in the device's own: UltraScale Architecture Memory
// Resources (UG573), UltraRAM, cascade. Address bits from 12 on say which block is meant; what goes
// into the first comes past all of them, and what one has read leaves at the last.
// Ports of cells are names and slices only: Yosys would wait for the cell's module with others.
module $__URAM_COLUMN_ (...);
	parameter OPTION_BLOCKS = 1;
	localparam INDEX = $clog2(OPTION_BLOCKS);

	parameter CLK_C_POL = 1;
	parameter PORT_A_CLK_POL = 1;
	parameter PORT_B_CLK_POL = 1;

	input CLK_C;

	input PORT_A_CLK;
	input PORT_A_CLK_EN;
	input PORT_A_RD_SRST;
	input PORT_A_WR_EN;
	input [INDEX+11:0] PORT_A_ADDR;
	input [71:0] PORT_A_WR_DATA;
	output [71:0] PORT_A_RD_DATA;

	input PORT_B_CLK;
	input PORT_B_CLK_EN;
	input PORT_B_RD_SRST;
	input PORT_B_WR_EN;
	input [INDEX+11:0] PORT_B_ADDR;
	input [71:0] PORT_B_WR_DATA;
	output [71:0] PORT_B_RD_DATA;

	// From block to block, those into block 0 unused: address, byte enables, data to write, enable,
	// whether it is a write; and data that was read.
	wire [106*(OPTION_BLOCKS+1)-1:0] down_a, down_b;
	wire [72*(OPTION_BLOCKS+1)-1:0] up_a, up_b;
	wire [72*OPTION_BLOCKS-1:0] last_a, last_b;
	assign down_a[105:0] = 0;
	assign down_b[105:0] = 0;
	assign up_a[71:0] = 0;
	assign up_b[71:0] = 0;
	assign PORT_A_RD_DATA = last_a[72*OPTION_BLOCKS-1:72*(OPTION_BLOCKS-1)];
	assign PORT_B_RD_DATA = last_b[72*OPTION_BLOCKS-1:72*(OPTION_BLOCKS-1)];

	genvar i;
	generate
		for (i = 0; i < OPTION_BLOCKS; i = i + 1) begin : block
			localparam ORDER = OPTION_BLOCKS == 1 ? "NONE" :
				i == 0 ? "FIRST" : i == OPTION_BLOCKS - 1 ? "LAST" : "MIDDLE";
			// Only the first is told from outside.
			wire [105:0] in_a, in_b;
			if (i == 0) begin
				assign in_a = {PORT_A_WR_EN, PORT_A_CLK_EN, PORT_A_WR_DATA, 9'h1ff, {11-INDEX{1'b0}}, PORT_A_ADDR};
				assign in_b = {PORT_B_WR_EN, PORT_B_CLK_EN, PORT_B_WR_DATA, 9'h1ff, {11-INDEX{1'b0}}, PORT_B_ADDR};
			end else begin
				assign in_a = 0;
				assign in_b = 0;
			end
			URAM288 #(
				.BWE_MODE_A("PARITY_INDEPENDENT"),
				.BWE_MODE_B("PARITY_INDEPENDENT"),
				.CASCADE_ORDER_A(ORDER),
				.CASCADE_ORDER_B(ORDER),
				.EN_AUTO_SLEEP_MODE("FALSE"),
				.IREG_PRE_A("FALSE"),
				.IREG_PRE_B("FALSE"),
				.IS_CLK_INVERTED(!CLK_C_POL),
				.OREG_A("FALSE"),
				.OREG_B("FALSE"),
				.REG_CAS_A("FALSE"),
				.REG_CAS_B("FALSE"),
				.RST_MODE_A("SYNC"),
				.RST_MODE_B("SYNC"),
				.SELF_ADDR_A(i),
				.SELF_ADDR_B(i),
				.SELF_MASK_A(11'h7ff ^ (OPTION_BLOCKS - 1)),
				.SELF_MASK_B(11'h7ff ^ (OPTION_BLOCKS - 1)),
			) ram (
				.ADDR_A(in_a[22:0]),
				.BWE_A(in_a[31:23]),
				.DIN_A(in_a[103:32]),
				.EN_A(in_a[104]),
				.RDB_WR_A(in_a[105]),
				.RST_A(PORT_A_RD_SRST),
				.INJECT_DBITERR_A(1'b0),
				.INJECT_SBITERR_A(1'b0),
				.CAS_IN_ADDR_A(down_a[106*i+:23]),
				.CAS_IN_BWE_A(down_a[106*i+23+:9]),
				.CAS_IN_DIN_A(down_a[106*i+32+:72]),
				.CAS_IN_EN_A(down_a[106*i+104]),
				.CAS_IN_RDB_WR_A(down_a[106*i+105]),
				.CAS_IN_DOUT_A(up_a[72*i+:72]),
				.CAS_OUT_ADDR_A(down_a[106*(i+1)+:23]),
				.CAS_OUT_BWE_A(down_a[106*(i+1)+23+:9]),
				.CAS_OUT_DIN_A(down_a[106*(i+1)+32+:72]),
				.CAS_OUT_EN_A(down_a[106*(i+1)+104]),
				.CAS_OUT_RDB_WR_A(down_a[106*(i+1)+105]),
				.CAS_OUT_DOUT_A(up_a[72*(i+1)+:72]),
				.DOUT_A(last_a[72*i+:72]),

				.ADDR_B(in_b[22:0]),
				.BWE_B(in_b[31:23]),
				.DIN_B(in_b[103:32]),
				.EN_B(in_b[104]),
				.RDB_WR_B(in_b[105]),
				.RST_B(PORT_B_RD_SRST),
				.INJECT_DBITERR_B(1'b0),
				.INJECT_SBITERR_B(1'b0),
				.CAS_IN_ADDR_B(down_b[106*i+:23]),
				.CAS_IN_BWE_B(down_b[106*i+23+:9]),
				.CAS_IN_DIN_B(down_b[106*i+32+:72]),
				.CAS_IN_EN_B(down_b[106*i+104]),
				.CAS_IN_RDB_WR_B(down_b[106*i+105]),
				.CAS_IN_DOUT_B(up_b[72*i+:72]),
				.CAS_OUT_ADDR_B(down_b[106*(i+1)+:23]),
				.CAS_OUT_BWE_B(down_b[106*(i+1)+23+:9]),
				.CAS_OUT_DIN_B(down_b[106*(i+1)+32+:72]),
				.CAS_OUT_EN_B(down_b[106*(i+1)+104]),
				.CAS_OUT_RDB_WR_B(down_b[106*(i+1)+105]),
				.CAS_OUT_DOUT_B(up_b[72*(i+1)+:72]),
				.DOUT_B(last_b[72*i+:72]),

				.CLK(CLK_C),
				.SLEEP(1'b0)
			);
		end
	endgenerate
endmodule
