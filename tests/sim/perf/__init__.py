"""Tests of sim/perf."""
