"""A live Linux guest with Soft-RoCE on one side, the simulated NIC on the other."""

COMMANDS = {
    "interop": ("sim.interop.command", "Let a Linux guest and the simulated NIC talk."),
}
