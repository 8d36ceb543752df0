"""Verbs for the simulated guest, with the names of rdma-core's pyverbs.

    ctx = await Context.open(platform)
    pd = await PD.create(ctx)
    mr = await MR.create(pd, 8192, Access.LOCAL_WRITE)
    cq = await CQ.create(ctx, 64)
    qp = await QP.create(pd, QPInitAttr(qp_type=QpType.RC, scq=cq, rcq=cq))

What asks the device is awaited. Every failure is an RdmaError, an OSError with an errno.
"""

from sim.guest.driver.errors import CommandError, DeviceError, DriverTimeout, RdmaError
from sim.guest.verbs.address import AH, AHAttr, GlobalRoute
from sim.guest.verbs.attr import DcStreams, QPAttr, QPCap, QPInitAttr
from sim.guest.verbs.context import PD, Context
from sim.guest.verbs.cq import CQ
from sim.guest.verbs.dc import DcDestination, query_dct, reset_stream
from sim.guest.verbs.event import AsyncEvent, EventQueue
from sim.guest.verbs.gid import gid_bytes, gid_text
from sim.guest.verbs.mkey import Interleaved, Mkey
from sim.guest.verbs.mp_wr import MpWr
from sim.guest.verbs.mr import MR, DmaMR, FastMR
from sim.guest.verbs.mw import MW
from sim.guest.verbs.qp import QP
from sim.guest.verbs.srq import SRQ, XRCD, SrqAttr
from sim.guest.verbs.wr import SGE, WC, RecvWR, SendWR

__all__ = [
    "AH",
    "CQ",
    "MR",
    "MW",
    "PD",
    "QP",
    "SGE",
    "SRQ",
    "WC",
    "XRCD",
    "AHAttr",
    "AsyncEvent",
    "CommandError",
    "Context",
    "DcDestination",
    "DcStreams",
    "DeviceError",
    "DmaMR",
    "DriverTimeout",
    "EventQueue",
    "FastMR",
    "GlobalRoute",
    "Interleaved",
    "Mkey",
    "MpWr",
    "QPAttr",
    "QPCap",
    "QPInitAttr",
    "RdmaError",
    "RecvWR",
    "SendWR",
    "SrqAttr",
    "gid_bytes",
    "gid_text",
    "query_dct",
    "reset_stream",
]
