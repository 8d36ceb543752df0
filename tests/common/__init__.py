"""Tests of hdl/common."""
