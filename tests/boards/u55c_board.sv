// The U55C for Verilator: models of the blocks that its top joins, and a board around it whose
// ports are the clocks and the far sides of these models; the core is that of board_core.sv.
/* verilator lint_off DECLFILENAME */
/* verilator lint_off UNUSEDSIGNAL */
/* verilator lint_off UNDRIVEN */
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off SYNCASYNCNET */
/* verilator lint_off WIDTHEXPAND */
module IBUFDS_GTE4 (input wire I, input wire IB, input wire CEB, output wire O, output wire ODIV2);
  assign O = I;
  assign ODIV2 = I;
endmodule

module IBUFDS (input wire I, input wire IB, output wire O);
  assign O = I;
endmodule

module BUFG (input wire I, output wire O);
  assign O = I;
endmodule

// user_clk is the pin's clock, which the bench gives 250 MHz; user_reset follows PERST#.
module pcie (@PCIE@);
  assign user_clk = sys_clk;
  assign user_reset = ~sys_reset;
endmodule

// The clock of the frames is the pin's, which the bench gives 322.265625 MHz.
module cmac (@CMAC@);
  reg status, remote_fault, ready, valid, last, user;
  reg [511:0] data;
  reg [63:0] keep;
  assign gt_txusrclk2 = gt_ref_clk_p;
  assign stat_rx_status = status;
  assign stat_rx_local_fault = ~status;
  assign stat_rx_remote_fault = remote_fault;
  assign tx_axis_tready = ready;
  assign rx_axis_tvalid = valid;
  assign rx_axis_tdata = data;
  assign rx_axis_tkeep = keep;
  assign rx_axis_tlast = last;
  assign rx_axis_tuser = user;
endmodule

module u55c_board (
    input wire core_clk, mac_clk, init_clk, perst_n, hold,
    input wire status, remote_fault, rx_valid, rx_last, rx_user, tx_ready,
    input wire [511:0] rx_data,
    input wire [63:0] rx_keep,
    output wire tx_valid, tx_last, tx_user, send_rfi, tx_reset, sys_reset, link_up,
    output wire [511:0] tx_data,
    output wire [63:0] tx_keep,
    output wire [15:0] tx_drops, rx_drops,
    output wire led_running, led_link, led_no_link, cattrip
);
  u55c dut (
      .pcie_refclk_p(core_clk), .pcie_refclk_n(~core_clk), .pcie_perst_n(perst_n),
      .qsfp_refclk_p(mac_clk), .qsfp_refclk_n(~mac_clk),
      .sysclk_p(init_clk), .sysclk_n(~init_clk),
      .pcie_rx_p(16'd0), .pcie_rx_n(16'd0), .pcie_tx_p(), .pcie_tx_n(),
      .qsfp_rx_p(4'd0), .qsfp_rx_n(4'd0), .qsfp_tx_p(), .qsfp_tx_n(),
      .led_running(led_running), .led_link(led_link), .led_no_link(led_no_link),
      .hbm_cattrip(cattrip)
  );
  always_comb begin
    dut.rocinante_block.hold = hold;
    dut.cmac_block.status = status;
    dut.cmac_block.remote_fault = remote_fault;
    dut.cmac_block.ready = tx_ready;
    dut.cmac_block.valid = rx_valid;
    dut.cmac_block.last = rx_last;
    dut.cmac_block.user = rx_user;
    dut.cmac_block.data = rx_data;
    dut.cmac_block.keep = rx_keep;
  end
  assign tx_valid = dut.cmac_block.tx_axis_tvalid;
  assign tx_last = dut.cmac_block.tx_axis_tlast;
  assign tx_user = dut.cmac_block.tx_axis_tuser;
  assign tx_data = dut.cmac_block.tx_axis_tdata;
  assign tx_keep = dut.cmac_block.tx_axis_tkeep;
  assign send_rfi = dut.cmac_block.ctl_tx_send_rfi;
  assign tx_reset = dut.cmac_block.core_tx_reset;
  assign sys_reset = dut.cmac_block.sys_reset;
  assign link_up = dut.rocinante_block.link_up;
  assign tx_drops = dut.rocinante_block.mac_tx_drops;
  assign rx_drops = dut.rocinante_block.mac_rx_drops;
endmodule
