"""Tests of sim/interop."""
