"""Bandwidth over the size of the messages, as a table and a plot.

Run it with ``.venv/bin/python examples/sweep.py``. Each point is a run of ``rocinante perf`` of its
own, so any option of that command can be swept in the same way: sizes, QPs, latency, loss.
"""

import argparse
import json
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--sizes", type=int, nargs="+", default=[64, 1024, 4096, 16384])
parser.add_argument("--width", default="64", help="data path of the card, bits")
parser.add_argument("-n", "--messages", default="200", help="messages of each point")
parser.add_argument("-o", "--output", default="sweep.svg", help="the plot")
chosen = parser.parse_args()

points = []
for size in chosen.sizes:
    command = [sys.executable, "-P", "-m", "sim.tools.cli", "perf", "write_bw", "-s", str(size)]
    command += ["--width", chosen.width, "-n", chosen.messages, "--json", "-"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    points.append(json.loads(done.stdout))
    print(f"{size:>8} B {points[-1]['gbps']:8.2f} Gb/s of {points[-1]['wire_limit_gbps']:.2f}")

figure, axes = pyplot.subplots()
axes.plot(chosen.sizes, [one["gbps"] for one in points], "o-", label="measured")
axes.plot(chosen.sizes, [one["wire_limit_gbps"] for one in points], "--", label="limit of the wire")
axes.set_xscale("log", base=2)
axes.set_xlabel("message, bytes")
axes.set_ylabel("payload, Gb/s")
axes.legend()
figure.savefig(chosen.output)
print("plot:", chosen.output)
