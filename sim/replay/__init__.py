"""Replays: one card takes the place of one machine of a capture, the other's packets are fed in."""
