"""Tests of sim/programs: pyverbs on simulated cards."""
