"""The enumerations of librdmacm."""

from __future__ import annotations

from typing import Any

from sim.programs.pyverbs.enums import load

#: Enumeration, the beginning of its names, and the rest of each with its number.
_TABLE = """
rdma_cm_event_type RDMA_CM_EVENT_ ADDR_RESOLVED=0 ADDR_ERROR=1 ROUTE_RESOLVED=2 ROUTE_ERROR=3
    CONNECT_REQUEST=4 CONNECT_RESPONSE=5 CONNECT_ERROR=6 UNREACHABLE=7 REJECTED=8 ESTABLISHED=9
    DISCONNECTED=10 DEVICE_REMOVAL=11 MULTICAST_JOIN=12 MULTICAST_ERROR=13 ADDR_CHANGE=14
    TIMEWAIT_EXIT=15
rdma_cm_join_mc_attr_mask RDMA_CM_JOIN_MC_ATTR_ ADDRESS=1 JOIN_FLAGS=2
rdma_cm_mc_join_flags RDMA_MC_JOIN_FLAG_ FULLMEMBER=0 SENDONLY_FULLMEMBER=1
rdma_port_space RDMA_PS_ IPOIB=2 TCP=262 UDP=273 IB=319
"""

globals().update(load(_TABLE))

RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT = 0, 3
RAI_PASSIVE, RAI_NUMERICHOST, RAI_NOROUTE, RAI_FAMILY = 1, 2, 4, 8


def __getattr__(name: str) -> Any:
    raise AttributeError(f"There is no {name}")
