"""Serves two cards with more than one function, in the folder that is the second argument.

They are those of the model of a bench in ``tests/nic``, whose module is the first argument.
"""

import importlib
import sys
from pathlib import Path

from sim.bench import testbench
from sim.host.command import serve

if __name__ == "__main__":
    config = importlib.import_module(sys.argv[1]).CONFIG
    serve(testbench.build(config=config, fast=False), config, Path(sys.argv[2]), cards=2)
