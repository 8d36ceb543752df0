"""Simulation: host and link models, guest driver, reference models, command line."""
