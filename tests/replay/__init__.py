"""Tests of sim/replay."""
