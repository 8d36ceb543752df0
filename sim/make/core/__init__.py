"""``./rocinante verilog``: the NIC as a core for a design of one's own."""
