"""Room ``egress``: headers and payload -> MAC beats with pad and ICRC."""
