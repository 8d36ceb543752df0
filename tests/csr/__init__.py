"""Tests of hdl/csr."""
