"""From the buffers of a chain to a decoded WQE in its line."""
