"""What is measured in a simulation: the demonstration, perf, control commands, speed, coverage."""

COMMANDS = {
    "demo": ("sim.measure.demo.command", "Run two simulated NICs against each other."),
    "perf": ("sim.measure.perf.command", "Measure bandwidth, message rate and latency."),
    "figures": ("sim.measure.perf.table", "Measure the recorded figures again and compare."),
    "commands": ("sim.measure.commands.command", "Measure how fast control commands are."),
    "sequences": ("sim.measure.sequences.command", "Show who tells whom what of a message."),
    "simspeed": ("sim.measure.simspeed.command", "Measure how fast the simulation itself is."),
    "coverage": ("sim.measure.coverage", "Show what the simulations of the tests have seen."),
}
