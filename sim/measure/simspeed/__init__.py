"""``rocinante simspeed``: the compiled models against cocotbext-axi, on the same traffic."""
