"""What is measured in a simulation: the demonstration, perf, control commands, speed, coverage."""
