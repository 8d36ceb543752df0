"""WQEs that wait for an answer."""
