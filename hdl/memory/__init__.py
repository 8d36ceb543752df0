"""Room ``memory``: keys, protection, address translation, scatter and gather."""
