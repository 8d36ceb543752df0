"""Tests of hdl/ingress."""
