"""Serves two cards with more than one function, in the folder that is the second argument.

The first argument names their configuration: module:NAME.
"""

import importlib
import sys
from pathlib import Path

from sim.bench import testbench
from sim.host.command import serve

if __name__ == "__main__":
    module, name = sys.argv[1].split(":")
    config = getattr(importlib.import_module(module), name)
    serve(testbench.build(config=config), config, Path(sys.argv[2]), cards=2)
