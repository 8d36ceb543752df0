"""A live Linux guest with Soft-RoCE on one side, the simulated NIC on the other."""
