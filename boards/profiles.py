"""Cards with a name: from the lowest that can be built to one that has everything.

``./rocinante demo --profile NAME`` plays the demonstration on one. The default card, the one of all
other commands, is ``NicConfig()``.
"""

from typing import Any

from boards.u55c.top import CONFIG as U55C
from hdl.config import LIMITS, SWITCHES, NicConfig

__all__ = ["PROFILES"]

#: Numbers whose lowest value makes no card smaller: time and origin.
_NO_SIZE = {"clock_hz", "commit"}

_LOWEST: dict[str, Any] = {
    name: low for name, (low, _, _) in LIMITS.items() if name not in _NO_SIZE
}
#: A control command is a chain of three descriptors, and no chain is longer than its virtqueue
#: (virtio 1.2, 2.7.5.3.1). A queue of two is for a driver that puts them into two.
_LOWEST["queue_size"] = 4

PROFILES: dict[str, NicConfig] = {
    # Each number as low as it can be, and no switch on. It has two queue pairs and one region.
    "smallest": NicConfig(
        width=64,
        mtu=256,
        **_LOWEST,
        **dict.fromkeys(SWITCHES, False),
    ),
    # The Alveo U55C's: PCI Express and 100 Gb/s.
    "board": U55C,
    # Each switch on, four functions that have enough of everything for the demonstration, and the
    # trace. The other numbers are the default card's, which are made for 100 Gb/s.
    "everything": NicConfig(
        functions=4,
        qps=1024,
        cqs=128,
        mrs=4096,
        gids=64,
        groups=64,
        vectors=64,
        read_resources=4096,
        trace_frames=256,
        **dict.fromkeys(SWITCHES, True),
    ),
}
