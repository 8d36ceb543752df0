"""The card behind vfio-user: each guest function on a unix socket, for QEMU and others."""

COMMANDS = {
    "card": ("sim.host.command", "Serve the card's functions to guests, by vfio-user."),
}
