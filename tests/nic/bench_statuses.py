"""A whole card and a peer in Python that answers as no good card would: statuses of completions."""

import cocotb

from hdl.abi.enums import Mtu, WcStatus, WrOpcode
from sim.bench.system import QpOptions, connect
from sim.wire.packets import build, dissect
from tests.nic.bench_nic import WAIT_NS, Pair
from tests.nic.card import CONFIG

READ_RESPONSE_FIRST, READ_RESPONSE_ONLY, ACK = 0x0D, 0x10, 0x11


class Alone:
    """QPs of ``p.nodes[0]``, whose peer's card is not connected: ``answer`` takes its place."""

    @classmethod
    async def up(cls, dut):
        self = cls()
        self.p = await Pair.up(dut, config=CONFIG, connect=False)
        self.wire = self.p.system.testbench.wires[0]
        return self

    async def asked(self, opcode, length):
        """A QP that has sent a request of ``length`` bytes, and another WQE behind it; returns the
        way back to it."""
        p = self.p
        self.qps = await connect(p.nodes, p.pds, p.cqs, QpOptions(mtu=Mtu.MTU_1024))
        wrs = [p.request(opcode, [p.mrs[0].sge(0, length)], number=n) for n in range(2)]
        await self.qps[0].post_send(wrs)
        frames = [(await self.wire.receive(WAIT_NS))[0] for _ in range(2)]
        request = dissect(frames[0])
        return {
            "src_gid": request.path["dst_gid"],
            "src_mac": request.path["dst_mac"],
            "dst_gid": request.fields["src_gid"],
            "dst_mac": frames[0][6:12],
            "psn": request.fields["psn"],
            "dest_qp": self.qps[0].qp_num,
            "pkey": 0xFFFF,
        }

    async def ends(self, status):
        """The request ends with ``status``, and the one behind it is flushed."""
        found = await self.p.done(count=2)
        assert [(wc.wr_id, wc.status) for wc in found] == [
            (0, status),
            (1, WcStatus.WR_FLUSH_ERR),
        ], found


@cocotb.test()
async def bad_responses(dut):
    """The response to a READ has another length, or comes in another order, than the READ asks for:
    BAD_RESP_ERR."""
    alone = await Alone.up(dut)
    for code, length in ((READ_RESPONSE_ONLY, 99), (READ_RESPONSE_FIRST, 1024)):
        way = await alone.asked(WrOpcode.RDMA_READ, 100)
        alone.wire.inject(build(code, **way, syndrome=0, msn=1, payload=bytes(length)))
        await alone.ends(WcStatus.BAD_RESP_ERR)


@cocotb.test()
async def fatal_answers(dut):
    """Each NAK that ends a request has a status of its own."""
    alone = await Alone.up(dut)
    for syndrome, status in (
        (0x61, WcStatus.REM_INV_REQ_ERR),
        (0x62, WcStatus.REM_ACCESS_ERR),
        (0x63, WcStatus.REM_OP_ERR),
    ):
        way = await alone.asked(WrOpcode.RDMA_WRITE, 100)
        alone.wire.inject(build(ACK, **way, syndrome=syndrome, msn=0))
        await alone.ends(status)
