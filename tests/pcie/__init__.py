"""Tests of hdl/pcie."""
