"""Tests of sim/make."""
