"""Tests of hdl/wire."""
