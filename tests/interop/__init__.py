"""Tests of sim/tools/interop."""
