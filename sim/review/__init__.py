"""What a reviewer reads of a card: one page of facts, and how they differ from another revision."""

COMMANDS = {
    "review": ("sim.review.command", "Write a site that a reviewer reads from top to bottom."),
}
