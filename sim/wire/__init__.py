"""What goes over the wire, for checking: packets built and dissected, captures."""
