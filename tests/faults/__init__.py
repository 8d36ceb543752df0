"""Faults that are put into the gateware on purpose: chosen ones in tables, and mutants."""
