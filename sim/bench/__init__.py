"""Test benches: cards with their hosts and wires, what they tell when they stall, jobs, bulk."""
