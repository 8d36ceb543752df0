"""Tests of hdl/queues."""
