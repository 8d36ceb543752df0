"""Runs in a guest: a process that breaks rings of its own, and what events it gets for that.

It finds the rings among the mappings of its device and writes into them and into doorbells what no
provider would. Each line of output is an event.
"""

import ctypes
import re
import sys

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_EVENT_CQ_ERR,
    IBV_EVENT_QP_FATAL,
    IBV_QPS_ERR,
    IBV_QPT_RC,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR

NAMES = {int(IBV_EVENT_QP_FATAL): "QP_FATAL", int(IBV_EVENT_CQ_ERR): "CQ_ERR"}


def mappings():
    """Address -> bytes of each mapping of the device."""
    found = {}
    with open("/proc/self/maps") as lines:
        for line in lines:
            if "uverbs" in line:
                start, end = (int(one, 16) for one in re.match(r"(\w+)-(\w+)", line).groups())
                found[start] = end - start
    return found


def word(address):
    """16 bits of memory."""
    return ctypes.c_uint16.from_address(address)


def break_rings(addresses):
    """Their available indices are far ahead."""
    for address in addresses:
        word(address + 2).value += 0x4000


def connected(pd, cq):
    """A QP that is connected with itself."""
    qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1)))
    route = GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0, hop_limit=1)
    attr = QPAttr(port_num=1)
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attr.dest_qp_num, attr.timeout, attr.retry_cnt, attr.rnr_retry = qp.qp_num, 14, 7, 7
    qp.to_rts(attr)
    return qp


def event():
    """The next one, by name."""
    found = ctx.get_async_event()
    found.ack()
    print(NAMES.get(int(found.event_type), found.event_type), flush=True)


ctx = Context(name=sys.argv[1])
pd = PD(ctx)
doorbells = max(mappings().items(), key=lambda one: one[1])[0]
sound, before = CQ(ctx, 8), mappings()
victim = connected(pd, sound)
device = ctx.query_device()
first = 1 + device.max_cq
pair = victim.qp_num & ((1 << (device.max_qp - 1).bit_length()) - 1)

# Its send queue: the card looks at it when the doorbell rings.
break_rings(mappings().keys() - before.keys())
queue = first + 2 * pair
word(doorbells + 4 * queue).value = queue
event()
assert victim.query(1)[0].qp_state == IBV_QPS_ERR
victim.close()

# A completion queue: a receive that is flushed completes there.
before = mappings()
broken = CQ(ctx, 8)
rings = mappings().keys() - before.keys()
flushed = connected(pd, broken)
flushed.post_recv(RecvWR(sg=[SGE(0, 0, MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE).lkey)], num_sge=1))
break_rings(rings)
attr = QPAttr(qp_state=IBV_QPS_ERR)
flushed.modify(attr, 1)
event()
flushed.close()
broken.close()

# All is as before for those that come after it.
connected(pd, sound).close()
print("done")
