"""``./rocinante build``: all that a vendor's tool needs to make a bitstream for a board."""
