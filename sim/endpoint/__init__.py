"""One simulated NIC for other programs: frames on a unix socket, verbs as JSON lines."""
