"""Answers: acknowledgements, data that a peer has asked for, results of atomics."""
