"""Tests of sim/measure."""
