"""What is made and never simulated: Verilog, boards' files, costs, registers, pages, packages."""
