"""Thousands of objects on a simulated card in little real time: see ``sim.bench.bulk.loader``."""
