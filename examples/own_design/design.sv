// A design around the core: its MAC streams go through a FIFO and come back, as on a looped cable.
// Host memory (m_axi) and registers (s_axil) are left to whoever is around this module.
module design_top (
    input  logic        clk,
    input  logic        rst,
    output logic [63:0] m_axi_araddr,
    output logic [1:0]  m_axi_arburst,
    output logic [7:0]  m_axi_arid,
    output logic [7:0]  m_axi_arlen,
    output logic [2:0]  m_axi_arsize,
    output logic        m_axi_arvalid,
    input  logic        m_axi_arready,
    input  logic [7:0]  m_axi_rid,
    input  logic [63:0] m_axi_rdata,
    input  logic [1:0]  m_axi_rresp,
    input  logic        m_axi_rlast,
    input  logic        m_axi_rvalid,
    output logic        m_axi_rready,
    output logic [63:0] m_axi_awaddr,
    output logic [1:0]  m_axi_awburst,
    output logic [7:0]  m_axi_awid,
    output logic [7:0]  m_axi_awlen,
    output logic [2:0]  m_axi_awsize,
    output logic        m_axi_awvalid,
    input  logic        m_axi_awready,
    output logic [63:0] m_axi_wdata,
    output logic [7:0]  m_axi_wstrb,
    output logic        m_axi_wlast,
    output logic        m_axi_wvalid,
    input  logic        m_axi_wready,
    input  logic [7:0]  m_axi_bid,
    input  logic [1:0]  m_axi_bresp,
    input  logic        m_axi_bvalid,
    output logic        m_axi_bready,
    input  logic [25:0] s_axil_araddr,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0]  s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,
    input  logic [25:0] s_axil_awaddr,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [3:0]  s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [1:0]  s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    output logic [3:0]  irq
);
  logic [63:0] m_axis_tx_tdata, s_axis_rx_tdata;
  logic [7:0] m_axis_tx_tkeep, s_axis_rx_tkeep;
  logic m_axis_tx_tlast, s_axis_rx_tlast;
  logic m_axis_tx_tuser, s_axis_rx_tuser;
  logic m_axis_tx_tvalid, s_axis_rx_tvalid;
  logic m_axis_tx_tready, s_axis_rx_tready;

  /* verilator lint_off PINCONNECTEMPTY */  // what the design has no use for
  // Ports that have the names of signals here are joined by ".*"; rocinante_template.sv has all.
  rocinante nic (
      .*,
      .m_axi_arcache(),
      .m_axi_arlock(),
      .m_axi_arprot(),
      .m_axi_arqos(),
      .m_axi_aruser(),
      .m_axi_awcache(),
      .m_axi_awlock(),
      .m_axi_awprot(),
      .m_axi_awqos(),
      .m_axi_awuser(),
      .s_axil_arprot(3'd0),
      .s_axil_awprot(3'd0),
      .intx(),
      .link_up(1'b1),
      .mac_rx_drops(16'd0),
      .mac_tx_drops(16'd0)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  beat_fifo #(
      .WIDTH(74),
      .DEPTH(1024)
  ) cable (
      .clk,
      .rst,
      .i_data({m_axis_tx_tuser, m_axis_tx_tlast, m_axis_tx_tkeep, m_axis_tx_tdata}),
      .i_valid(m_axis_tx_tvalid),
      .i_ready(m_axis_tx_tready),
      .o_data({s_axis_rx_tuser, s_axis_rx_tlast, s_axis_rx_tkeep, s_axis_rx_tdata}),
      .o_valid(s_axis_rx_tvalid),
      .o_ready(s_axis_rx_tready)
  );
endmodule

// Keeps up to DEPTH beats (a power of two) in their order.
module beat_fifo #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] i_data,
    input  logic             i_valid,
    output logic             i_ready,
    output logic [WIDTH-1:0] o_data,
    output logic             o_valid,
    input  logic             o_ready
);
  localparam int Bits = $clog2(DEPTH);
  logic [WIDTH-1:0] beats[DEPTH];
  logic [Bits:0] head, tail;

  assign i_ready = (head - tail) != (Bits + 1)'(DEPTH);
  assign o_valid = head != tail;
  assign o_data  = beats[tail[Bits-1:0]];

  always_ff @(posedge clk) begin
    if (i_valid && i_ready) begin
      beats[head[Bits-1:0]] <= i_data;
      head <= head + 1'b1;
    end
    if (o_valid && o_ready) tail <= tail + 1'b1;
    if (rst) begin
      head <= '0;
      tail <= '0;
    end
  end
endmodule
