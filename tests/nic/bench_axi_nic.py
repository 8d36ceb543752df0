"""RDMA between two QPs of one card, whose host, registers and wire are cocotbext-axi's."""

import cocotb
import numpy as np

from hdl.abi.enums import Access, WcStatus, WrOpcode
from sim.bench.system import System, connect
from sim.guest.verbs import CQ, MR, RecvWR, SendWR
from tests.nic.axi_platform import AxiNicTestbench
from tests.nic.test_axi_nic import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZES = (1, 64, 300, 4096, 9000)
PATIENCE_NS = 2_000_000


async def completions(cq, count):
    done = []
    while len(done) < count:
        done += await cq.wait(1, timeout_ns=PATIENCE_NS)
    assert {wc.status for wc in done} == {WcStatus.SUCCESS}
    return done


@cocotb.test()
async def rdma(dut):
    """SEND, WRITE and READ of a few sizes; every byte, every completion, interrupts by wires."""
    testbench = AxiNicTestbench(dut, config=CONFIG, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=400_000)
    node = system.nodes[0]
    nodes, host = (node, node), node.host
    pds = [await node.context.alloc_pd() for _ in nodes]
    cqs = [await CQ.create(node.context, 64) for _ in nodes]
    qps = await connect(nodes, pds, cqs)
    total = sum(SIZES)
    mrs = [await MR.create(pd, 3 * total, RIGHTS) for pd in pds]
    rng = np.random.default_rng(1)
    ours = rng.integers(0, 256, 3 * total, np.uint8)
    theirs = rng.integers(0, 256, 3 * total, np.uint8)
    mrs[0].write(ours)
    mrs[1].write(theirs)
    before = host.interrupts.received

    await qps[1].post_recv([RecvWR(n, [mrs[1].sge(at, size)]) for n, at, size in places(0)])
    requests = [SendWR(n, WrOpcode.SEND, [mrs[0].sge(at, size)]) for n, at, size in places(0)]
    for kind, opcode in ((1, WrOpcode.RDMA_WRITE), (2, WrOpcode.RDMA_READ)):
        for n, at, size in places(kind * total):
            request = SendWR(10 * kind + n, opcode, [mrs[0].sge(at, size)])
            request.set_wr_rdma(mrs[1].rkey, mrs[1].iova + at)
            requests.append(request)
    await qps[0].post_send(requests)
    await completions(cqs[0], len(requests))
    received = await completions(cqs[1], len(SIZES))
    assert [wc.byte_len for wc in received] == list(SIZES)

    await testbench.cycles(200)
    ours[2 * total :] = theirs[2 * total :]
    theirs[: 2 * total] = ours[: 2 * total]
    assert (mrs[0].read(3 * total) == ours).all() and (mrs[1].read(3 * total) == theirs).all()
    assert host.interrupts.received > before and not host.interrupts.spurious
    assert not int(dut.nic0_read_errors.value) and not int(dut.nic0_write_errors.value)
    counters = await node.counters()
    assert counters["rx_packets"] == len(testbench.seen) > len(requests)


def places(start):
    """Number, place and size of each message."""
    for n, size in enumerate(SIZES):
        yield n, start, size
        start += size
