// The DE10-Agilex for Verilator: models of the blocks that its top joins, and a board around it with
// the ports of u55c_board.sv, so that the same cases serve both.
/* verilator lint_off DECLFILENAME */
/* verilator lint_off UNUSEDSIGNAL */
/* verilator lint_off UNDRIVEN */
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off SYNCASYNCNET */
/* verilator lint_off WIDTHEXPAND */
// coreclkout_hip is the pin's clock, which the bench gives 250 MHz; the reset follows PERST#.
module pcie (@PCIE@);
  assign coreclkout_hip = refclk0;
  assign p0_reset_status_n = pin_perst_n;
endmodule

// The clock of the frames is the pin's, which the bench gives 402.83 MHz. The streams' first byte is
// the highest one.
module mac (@MAC@);
  reg status, remote_fault, ready, valid, first, last, user;
  reg [511:0] data;
  reg [5:0] empty;
  assign o_clk_pll_div64 = {6{i_clk_ref}};
  assign o_tx_pll_locked = i_csr_rst_n;
  assign o_xcvr_reconfig_waitrequest = 0;
  assign o_xcvr_reconfig_readdata = {4{8'h81}};
  assign o_rx_pcs_ready = status;
  assign o_local_fault_status = ~status;
  assign o_remote_fault_status = remote_fault;
  assign o_tx_ready = ready;
  assign o_rx_valid = valid;
  assign o_rx_data = data;
  assign o_rx_startofpacket = first;
  assign o_rx_endofpacket = last;
  assign o_rx_empty = empty;
  assign o_rx_error = {6{user}};
endmodule

// The part is configured when PERST# ends: the bench has one reset.
module reset_release (@RELEASE@);
  reg waits;
  assign ninit_done = waits;
endmodule

module de10_agilex_board (
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
  function automatic [511:0] turned(input [511:0] beat);
    for (int n = 0; n < 64; n++) turned[8*n +: 8] = beat[8*(63-n) +: 8];
  endfunction

  de10_agilex dut (
      .pcie_refclk_p({2{core_clk}}), .pcie_perst_n(perst_n),
      .qsfp_refclk_p(mac_clk), .qsfp_refclk_bti_p(mac_clk), .sysclk_p(init_clk),
      .pcie_rx_p(16'd0), .pcie_rx_n(16'd0), .pcie_tx_p(), .pcie_tx_n(),
      .qsfp_rx_p(4'd0), .qsfp_rx_n(4'd0), .qsfp_tx_p(), .qsfp_tx_n(),
      .qsfp_rst_n(), .qsfp_mod_sel_n(), .qsfp_initmode(),
      .led_running(led_running), .led_link(led_link), .led_no_link(led_no_link)
  );
  reg in_frame;
  always @(posedge mac_clk) if (!perst_n) in_frame <= 0; else if (rx_valid) in_frame <= ~rx_last;
  always_comb begin
    dut.rocinante_block.hold = hold;
    dut.reset_release_block.waits = ~perst_n;
    dut.mac_block.status = status;
    dut.mac_block.remote_fault = remote_fault;
    dut.mac_block.ready = tx_ready;
    dut.mac_block.valid = rx_valid;
    dut.mac_block.first = ~in_frame;
    dut.mac_block.last = rx_last;
    dut.mac_block.user = rx_user;
    dut.mac_block.data = turned(rx_data);
    dut.mac_block.empty = 6'(64 - $countones(rx_keep));
  end
  assign tx_valid = dut.mac_block.i_tx_valid;
  assign tx_last = dut.mac_block.i_tx_endofpacket;
  assign tx_user = dut.mac_block.i_tx_error;
  assign tx_data = turned(dut.mac_block.i_tx_data);
  assign tx_keep = {64{1'b1}} >> (tx_last ? dut.mac_block.i_tx_empty : 6'd0);
  assign send_rfi = ~status;  // the MAC does so itself
  assign tx_reset = ~dut.mac_block.i_tx_rst_n;
  assign sys_reset = dut.mac_block.i_reconfig_reset;
  assign link_up = dut.rocinante_block.link_up;
  assign tx_drops = dut.rocinante_block.mac_tx_drops;
  assign rx_drops = dut.rocinante_block.mac_rx_drops;
  assign cattrip = 0;
endmodule
