"""Guest machines in front of the served card: a Debian with its driver and verbs programs."""

COMMANDS = {
    "guest": ("sim.machine.command", "Boot a Debian guest with simulated cards; run a command."),
    "package": ("sim.machine.packages.command", "Build Debian packages of firmware and driver."),
}
