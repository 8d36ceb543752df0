"""Tests of hdl/abi."""
