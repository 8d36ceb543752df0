"""Tests of sim/tools/perf."""
