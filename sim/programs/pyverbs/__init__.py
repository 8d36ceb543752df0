"""The synchronous verbs API of rdma-core's pyverbs, on simulated cards.

Names, arguments and messages are pyverbs'; the code is this project's. docs/pyverbs.md says what
stands. A program imports it as ``pyverbs`` (``sim.programs.importing``).
"""
