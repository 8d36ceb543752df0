"""What a guest would run: driver and verbs. Knows nothing of the simulation."""
