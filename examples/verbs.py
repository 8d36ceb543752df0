"""Two whole cards in one simulation, driven by the verbs in Python: a cocotb bench of your own.

Run it with ``.venv/bin/python examples/verbs.py``. The lower part builds the cards' model, which
all tests share, and starts the simulation. The upper part is what runs inside.
"""

import cocotb

from hdl.abi.enums import Access, WrOpcode
from hdl.config import NicConfig
from sim.bench import testbench
from sim.bench.system import VISIBLE_NS, System
from sim.guest.verbs import (
    CQ,
    MR,
    QP,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    SendWR,
)
from sim.rtl.build import run

CONFIG = NicConfig(width=64)
REMOTE = Access.LOCAL_WRITE | Access.REMOTE_WRITE


async def prepare(ctx: Context) -> tuple[QP, CQ, MR]:
    """A queue pair, its completion queue, and a region that peers may write."""
    pd = await ctx.alloc_pd()
    cq = await CQ.create(ctx, 256)
    qp = await QP.create(pd, QPInitAttr(scq=cq, rcq=cq, cap=QPCap(max_send_wr=64)))
    mr = await MR.create(pd, 1 << 20, REMOTE, offset=123)
    return qp, cq, mr


def route(peer_address: str, peer_mac: bytes, peer: QP) -> QPAttr:
    """How to get to a peer's queue pair."""
    way = AHAttr(GlobalRoute(peer_address), roce_dmac=peer_mac)
    return QPAttr(dest_qp_num=peer.qp_num, ah_attr=way, qp_access_flags=REMOTE)


@cocotb.test()
async def write(dut):
    """One WRITE from card a to card b."""
    system = await System.start(dut, CONFIG)
    a, b = system.nodes
    qp, cq, mr = await prepare(a.context)
    peer_qp, _peer_cq, peer_mr = await prepare(b.context)
    await qp.to_rts(route(b.address, b.mac, peer_qp))
    await peer_qp.to_rts(route(a.address, a.mac, qp))

    payload = bytes(range(256)) * 40
    mr.write(payload)
    wr = SendWR(wr_id=1, opcode=WrOpcode.RDMA_WRITE, sg=[mr.sge(0, len(payload))])
    wr.set_wr_rdma(peer_mr.rkey, peer_mr.iova)
    await qp.post_send(wr)
    (wc,) = await cq.wait()
    await cocotb.triggers.Timer(VISIBLE_NS, "ns")
    assert bytes(peer_mr.read(len(payload))) == payload
    cocotb.log.info("%s of %d bytes: %s", wc.opcode.name, len(payload), wc.status.name)


if __name__ == "__main__":
    results = run(testbench.build(config=CONFIG), test_module="verbs")
    print("passed; log, results and waves are in", results.folder)
