"""From gateware to a simulation: Verilog, compiled model, run, and the tools they need."""
