"""Tests of sim/campaign."""
