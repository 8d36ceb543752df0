"""Tests of hdl/transport."""
