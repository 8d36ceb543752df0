"""A whole board in Verilator, and firmware and driver on a PC for a board behind a UART."""

COMMANDS = {
    "board": ("sim.board.command", "Run a whole board in the simulation."),
    "bridge": ("sim.board.bridge.command", "Put a board behind a UART at any program's command."),
}
