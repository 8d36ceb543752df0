"""Which QP sends next, and its packets: from a WQE that was fetched to jobs for egress."""
