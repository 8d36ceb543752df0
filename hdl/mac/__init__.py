"""Room ``mac``: what lies between the core and the MAC."""
