"""Room ``ingress``: MAC beats -> parsed, checked packets."""
