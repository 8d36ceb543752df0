"""Tests of hdl/mac."""
