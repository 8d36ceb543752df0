// The ECPIX-5 as its UART and its PHY see it: the top of the bitstream, and the PLL's oscillator.
`timescale 1ps / 1ps

module ecpix5_board (
    input clk100,
    input vco,
    input button_n,
    input uart_rx,
    output uart_tx,
    output led_running_n,
    output led_phy_n,
    output phy_rst_n,
    output rgmii_tx_clk,
    output rgmii_tx_ctl,
    output [3:0] rgmii_tx_data,
    input rgmii_rx_clk,
    input rgmii_rx_ctl,
    input [3:0] rgmii_rx_data
);
  ecpix5 fpga (
      .clk100_0__io(clk100),
      .rst_0__io(button_n),
      .uart_0__rx__io(uart_rx),
      .uart_0__tx__io(uart_tx),
      .led_0__running__io(led_running_n),
      .led_0__phy__io(led_phy_n),
      .eth_rgmii_0__rst__io(phy_rst_n),
      .eth_rgmii_0__tx_clk__io(rgmii_tx_clk),
      .eth_rgmii_0__tx_ctl__io(rgmii_tx_ctl),
      .eth_rgmii_0__tx_data__io(rgmii_tx_data),
      .eth_rgmii_0__rx_clk__io(rgmii_rx_clk),
      .eth_rgmii_0__rx_ctl__io(rgmii_rx_ctl),
      .eth_rgmii_0__rx_data__io(rgmii_rx_data)
  );
  always_comb fpga.pll.vco = vco;
endmodule
