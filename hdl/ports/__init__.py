"""Signatures and row structures that rooms share: types only, no logic."""
