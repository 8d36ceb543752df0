"""A space of cards: what each costs and how fast it is, and which of them no other one beats."""

COMMANDS = {
    "explore": ("sim.explore.command", "Measure a space of cards, and draw its Pareto front."),
}
