"""Tests of the data path of the network function."""
