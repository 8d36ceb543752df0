"""Programs that use pyverbs on simulated cards, in the process of the simulation."""

COMMANDS = {
    "pyverbs": ("sim.programs.command", "Run a pyverbs script on simulated cards."),
    "verbs-tests": ("sim.programs.command", "Run rdma-core's own tests on a simulated card."),
}
