"""Tests of sim/make/timing."""
