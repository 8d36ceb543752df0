"""Names of the counters and of the report words, in the order of their registers.

The gateware's members and the firmware's map both come from these tuples; ``hdl/nic.py`` drives the
member of each name.
"""

from __future__ import annotations

__all__ = ["COUNTERS", "DEBUG", "PORT_COUNTERS"]

#: Of the port: what ingress and egress count.
PORT_COUNTERS: tuple[str, ...] = ()
#: Of the rooms behind them.
COUNTERS: tuple[str, ...] = ()
#: State of the rooms, for reports about a stall.
DEBUG: tuple[str, ...] = ()
