"""Tests of hdl/memory."""
