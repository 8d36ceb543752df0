"""Tests of sim/make/sta."""
