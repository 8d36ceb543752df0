"""One simulated NIC for other programs: frames on a unix socket, verbs as JSON lines."""

COMMANDS = {
    "endpoint": ("sim.endpoint.command", "Put one simulated NIC at any program's command."),
}
