"""Tests of hdl/ports."""
