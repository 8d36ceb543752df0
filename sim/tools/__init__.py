"""The command line, and what all commands share: terminal, outputs, the checkout."""

COMMANDS = {
    "info": ("sim.tools.environment", "Show the configuration of a card and the tool versions."),
    "clean": ("sim.tools.environment", "Remove all that was built (the environment stays)."),
    "firmware": ("sim.tools.card", "Serve the control queues of a card through its BAR."),
    "trace": ("sim.tools.card", "Record the headers of the frames of a running card."),
}
