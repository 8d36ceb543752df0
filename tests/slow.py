"""Says which cases of a bench wait for the runs with ``--slow``: ``@cocotb.test(skip=QUICK)``.

A bench is one test of pytest, whose mark would take all of its cases. ``tests/conftest.py`` tells
simulations of the option through the environment.
"""

import os

#: Whether the suite runs without ``--slow``.
QUICK = os.environ.get("ROCINANTE_SLOW") != "1"
