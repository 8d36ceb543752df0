"""A host for boards without a bus: registers, and a memory in block RAM, over a UART."""
