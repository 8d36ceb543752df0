"""``rocinante perf``: bandwidth, message rate and latency as perftest reports them, simulated."""
