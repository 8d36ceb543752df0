"""The rings of virtqueues: how far one reaches, heads, descriptors, used elements."""
