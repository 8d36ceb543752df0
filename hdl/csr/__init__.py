"""Room ``csr``: register blocks, described once."""
