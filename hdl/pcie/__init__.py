"""The AMD PCIE4 and PCIE4C blocks' user interface: one side of the host port."""
