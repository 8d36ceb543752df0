"""Tests of the boards, without the vendors' tools."""
