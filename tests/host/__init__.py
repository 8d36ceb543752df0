"""Tests of hdl/host."""
