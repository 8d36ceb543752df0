"""Tests of firmware/."""
