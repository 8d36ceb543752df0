"""Two whole cards: a READ finds what the WRITEs in front of it have written, however late that is
taken by the host (IBTA vol 1, 10.8.3.3, table 79: a READ behind a WRITE is in order)."""

import random

import cocotb
import numpy as np

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, SendWR
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
SPAN, ROUNDS = 1 << 16, 16


@cocotb.test()
async def a_read_finds_what_was_written_before(dut):
    """READ, WRITE, READ of what was written, many times one behind the other, while the host takes
    writes far more slowly than they come."""
    system = await System.start(dut, CONFIG)
    rng = random.Random(3)
    pds = [await node.context.alloc_pd() for node in system.nodes]
    cqs = [await CQ.create(node.context, 128) for node in system.nodes]
    mrs = [await MR.create(pd, SPAN, RIGHTS) for pd in pds]
    found = await MR.create(pds[0], SPAN, RIGHTS)
    qps = await connect(system.nodes, pds, cqs, QpOptions(access=RIGHTS, max_rd_atomic=16))
    system.nodes[1].host.set(write_gbps=0.5, read_latency_ns=200)
    for turn in range(6):
        octets = np.frombuffer(random.Random(turn).randbytes(SPAN), np.uint8)
        mrs[0].write(octets)
        batch, wanted = [], []
        for number in range(ROUNDS):
            length = rng.choice([1, 8, 64, 300, 1500])
            at = 2048 * number + rng.randrange(500)
            for opcode, flags in (
                (WrOpcode.RDMA_READ, SendFlags(0)),
                (WrOpcode.RDMA_WRITE, SendFlags(0)),
                (WrOpcode.RDMA_READ, SendFlags.SIGNALED),
            ):
                local = mrs[0] if opcode == WrOpcode.RDMA_WRITE else found
                wr = SendWR(number, opcode, [local.sge(at, length)], flags)
                wr.set_wr_rdma(mrs[1].rkey, mrs[1].iova + at)
                batch.append(wr)
            wanted.append((at, length))
        await qps[0].post_send(batch)
        done = await cqs[0].wait(ROUNDS, timeout_ns=20_000_000)
        assert all(one.status == WcStatus.SUCCESS for one in done), done
        for at, length in wanted:
            assert np.array_equal(found.read(length, at), octets[at : at + length]), (turn, at)
