// The ECP5's cells that a board's top names: pads, registers at pins, the PLL. Their delays are not
// modelled. Sources: FPGA-TN-02035 (registers at pins), FPGA-TN-02200 (PLL, formerly TN1263).
`timescale 1ps / 1ps

module IB (
    input I,
    output O
);
  assign O = I;
endmodule

// A pad that is not driven is high: the board pulls it up.
module OBZ (
    input I,
    input T,
    output O
);
  assign O = I | T;
endmodule

module FD1S3AX (
    input CK,
    input D,
    output reg Q
);
  initial Q = 0;
  always @(posedge CK) Q <= D;
endmodule

module OFS1P3DX (
    input SCLK,
    input SP,
    input CD,
    input D,
    output reg Q
);
  initial Q = 0;
  always @(posedge SCLK)
    if (CD) Q <= 0;
    else if (SP) Q <= D;
endmodule

// D0 is out while the clock is high, D1 while it is low.
module ODDRX1F (
    input SCLK,
    input RST,
    input D0,
    input D1,
    output Q
);
  reg first, second;
  always @(posedge SCLK) {first, second} <= RST ? 2'b00 : {D0, D1};
  assign Q = SCLK ? first : second;
endmodule

// What came at a rising edge and at the falling one behind it is out from the next rising one on.
module IDDRX1F (
    input SCLK,
    input RST,
    input D,
    output reg Q0,
    output reg Q1
);
  reg rising, falling;
  always @(posedge SCLK) rising <= D;
  always @(negedge SCLK) falling <= D;
  always @(posedge SCLK) {Q0, Q1} <= RST ? 2'b00 : {rising, falling};
endmodule

// Both edges of `vco` are cycles of the oscillator. A model without delays cannot make them, so the
// bench drives it, at the frequency that the parameters ask for: LOCK comes when the divided input
// agrees with them, and goes when it does not.
module EHXPLLL #(
    parameter FEEDBK_PATH = "CLKOP",
    parameter CLKI_DIV = 1,
    parameter CLKFB_DIV = 1,
    parameter CLKOP_ENABLE = "ENABLED",
    parameter CLKOP_DIV = 1,
    parameter CLKOP_CPHASE = 0,
    parameter CLKOP_FPHASE = 0,
    parameter CLKOS_ENABLE = "DISABLED",
    parameter CLKOS_DIV = 1,
    parameter CLKOS_CPHASE = 0,
    parameter CLKOS_FPHASE = 0,
    parameter CLKOS2_ENABLE = "DISABLED",
    parameter CLKOS2_DIV = 1,
    parameter CLKOS2_CPHASE = 0,
    parameter CLKOS2_FPHASE = 0
) (
    input CLKI,
    input RST,
    // verilator lint_off UNUSEDSIGNAL
    input CLKFB,  // what is not modelled
    input STDBY,
    input PHASESEL0,
    input PHASESEL1,
    input PHASEDIR,
    input PHASESTEP,
    input PHASELOADREG,
    input PLLWAKESYNC,
    input ENCLKOP,
    // verilator lint_on UNUSEDSIGNAL
    output reg CLKOP,
    output reg CLKOS,
    output reg CLKOS2,
    output reg LOCK
);
  if (FEEDBK_PATH != "CLKOP" || CLKOP_ENABLE != "ENABLED") begin : other_feedback
    $error("Only feedback from CLKOP is modelled");
  end
  if (CLKOP_FPHASE != 0 || CLKOS_FPHASE != 0 || CLKOS2_FPHASE != 0) begin : fine_phase
    $error("Fractions of the oscillator's cycle are not modelled");
  end

  reg vco;
  integer cycle, last, inputs;
  initial {CLKOP, CLKOS, CLKOS2, LOCK, cycle, last, inputs} = 0;

  // Level of an output that is `phase` - (`divider` - 1) cycles behind.
  function automatic bit level(integer now, integer divider, integer phase);
    return (now + 2 * divider - 1 - phase) % divider < divider / 2;
  endfunction

  always @(posedge vco, negedge vco) begin
    cycle <= cycle + 1;
    CLKOP <= level(cycle, CLKOP_DIV, CLKOP_CPHASE);
    CLKOS <= CLKOS_ENABLE == "ENABLED" && level(cycle, CLKOS_DIV, CLKOS_CPHASE);
    CLKOS2 <= CLKOS2_ENABLE == "ENABLED" && level(cycle, CLKOS2_DIV, CLKOS2_CPHASE);
  end

  always @(posedge CLKI) begin
    inputs <= inputs == CLKI_DIV - 1 ? 0 : inputs + 1;
    if (inputs == 0) begin
      last <= cycle;
      LOCK <= !RST && cycle - last == CLKFB_DIV * CLKOP_DIV;
    end
  end
endmodule
