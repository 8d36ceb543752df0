"""``./rocinante demo``: two NICs against each other, every byte compared."""
