"""Tests of sim/tools: the command line and what its commands share."""
