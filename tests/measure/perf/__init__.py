"""Tests of sim/measure/perf."""
