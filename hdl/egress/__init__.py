"""Room ``egress``: headers and payload to ICRC and MAC beats."""
