"""Random scenarios between two cards: what happens (plan, draw), and what must become of it."""
