"""Serves cards with two guest functions, in the folder that is the only argument.

They are those of the model that ``tests/nic/bench_functions.py`` has.
"""

import sys
from pathlib import Path

from sim.bench import testbench
from sim.host.command import serve
from tests.nic.bench_functions import CONFIG

if __name__ == "__main__":
    serve(testbench.build(config=CONFIG, fast=False), CONFIG, Path(sys.argv[1]), cards=2)
