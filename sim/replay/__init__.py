"""Replays: one card takes the place of one machine of a capture, the other's packets are fed in."""

COMMANDS = {
    "replay": ("sim.replay.command", "Put a card in the place of a machine of a capture."),
}
