"""Cards that many simulations share: building the model of one takes minutes, so there are few."""

from __future__ import annotations

from dataclasses import replace

from hdl.config import NicConfig

__all__ = ["EVERYTHING", "FEATURES", "FUNCTIONS", "PLAIN"]

#: The default card; at this width it simulates soonest.
PLAIN = NicConfig(width=64)
#: Switches, off by default, of all that a program may ask for.
FEATURES = dict.fromkeys(
    ("placement", "persistence", "memcpy", "xrc", "mp_wr", "mkeys", "dc"), True
)
#: With all of these.
EVERYTHING = replace(PLAIN, **FEATURES)
#: The same with two functions of few objects, packed virtqueues, and all that watches a running
#: card.
FUNCTIONS = replace(
    EVERYTHING,
    functions=2,
    qps=32,
    cqs=16,
    mrs=64,
    gids=8,
    queue_size=256,
    outstanding=128,
    read_resources=128,
    recv_lines=128,
    read_sinks=128,
    long_sinks=2,
    translation_lines=64,
    trace_frames=64,
    latency=True,
    parity=True,
    packed=True,
)
