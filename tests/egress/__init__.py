"""Tests of hdl/egress."""
