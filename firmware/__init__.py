"""The firmware: serves the control queue and programs the tables over a register bus.

Async Python on the abstract services of ``device``; the same code runs beside a simulation and on a
host that maps the management function's BAR.
"""
