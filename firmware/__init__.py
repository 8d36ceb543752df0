"""The firmware: serves the control queue and programs the tables over a register bus."""
