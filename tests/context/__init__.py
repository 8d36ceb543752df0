"""Tests of hdl/context."""
