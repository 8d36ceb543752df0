"""One folder for each card: clocks, pins, hard blocks, constraints, build script."""
