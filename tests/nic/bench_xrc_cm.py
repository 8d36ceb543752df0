"""XRC connections that are made by messages of QP1: an initiator asks, and the side of the target
answers with the number of a receive queue."""

import cocotb
import pytest

from hdl.abi import mad
from hdl.abi.enums import QpState, QpType, WcStatus
from sim.guest.cm.agent import Agent
from sim.guest.cm.params import ConnParam, Rejected
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import QP, QPInitAttr
from tests.nic.bench_cm import PORT, QUICK, WAIT_NS
from tests.nic.initiator import CAP
from tests.nic.xrc import Process, Xrc

SPACE = mad.SERVICE_IB


class Ends(Xrc):
    """Two cards with an agent each, and a receive queue of one process on the second."""

    @classmethod
    async def up(cls, dut):
        self = await super().up(dut, processes=0)
        neighbours = {node.context.query_gid(1, 0): node.mac for node in self.nodes}
        self.agents = []
        for seed, node in enumerate(self.nodes):
            agent = await Agent.open(node.context, neighbours.get, timing=QUICK, seed=seed)
            cocotb.start_soon(agent.run())
            self.agents.append(agent)
        self.processes = [await Process.up(self.nodes[1].context, self.xrcd)]
        self.listener = self.agents[1].listen(PORT, space=SPACE)
        return self

    async def ask(self):
        """An initiator that asks the second card, and its end of the connection."""
        ini = await QP.create(self.pd, QPInitAttr(QpType.XRC_INI, self.cq, cap=CAP))
        gid = self.nodes[1].context.query_gid(1, 0)
        return ini, await self.agents[0].connect(ini, gid, PORT, ConnParam(b"xrc"), space=SPACE)

    async def target(self):
        return await QP.create(self.there, QPInitAttr(QpType.XRC_TGT, xrcd=self.xrcd))

    async def answer(self):
        """Accept a connection with a target, and tell the number of the receive queue."""
        one = await self.listener.get_request(timeout_ns=WAIT_NS)
        assert one.private_data.startswith(b"xrc")
        number = self.processes[0].srq.srq_num.to_bytes(4, "big")
        await one.accept(await self.target(), ConnParam(number, responder_resources=2))
        return one


@cocotb.test()
async def connect_send_and_disconnect(dut):
    """The queue whose number came with the answer gets what the initiator sends; READs and WRITEs
    need nothing of it. Either side ends the connection."""
    p = await Ends.up(dut)
    process = p.processes[0]
    for who in (0, 1):
        answering = cocotb.start_soon(p.answer())
        p.ini, one = await p.ask()
        other = await answering
        assert (await p.ini.query()).qp_state == (await other.qp.query()).qp_state == QpState.RTS
        number = int.from_bytes(one.private_data[:4], "big")
        await process.post(3, size=2000)
        await p.ini.post_send(p.send(100, 2000, 1, srq_num=number))
        (sent,), (got,) = await p.good(), await process.done()
        assert (sent.wr_id, got.wr_id, got.status) == (1, 3, WcStatus.SUCCESS)
        assert got.byte_len == 2000 and got.qp_num == other.qp.qp_num
        assert process.mr.read(2000, 6000).tobytes() == p.data[100:2100].tobytes()
        first, second = (one, other) if who == 0 else (other, one)
        leaving = cocotb.start_soon(first.disconnect(b"bye"))
        assert (await second.disconnected()).startswith(b"bye")
        await second.disconnect()
        await leaving
    await p.well()


@cocotb.test()
async def refused(dut):
    """An ordinary queue pair does not answer an initiator, nor a target one that is not; who asks
    without a listener in that space of ports learns it."""
    p = await Ends.up(dut)

    async def wrong():
        one = await p.listener.get_request(timeout_ns=WAIT_NS)
        init = QPInitAttr(QpType.RC, p.processes[0].cq, p.processes[0].cq, CAP)
        with pytest.raises(RdmaError, match="not for a RC"):
            await one.accept(await QP.create(p.there, init))
        one.reject(b"no")

    answering = cocotb.start_soon(wrong())
    with pytest.raises(Rejected) as found:
        await p.ask()
    assert found.value.private_data.startswith(b"no")
    await answering
    plain = await QP.create(p.pd, QPInitAttr(QpType.RC, p.cq, p.cq, CAP))
    gid = p.nodes[1].context.query_gid(1, 0)

    async def target():
        one = await p.listener.get_request(timeout_ns=WAIT_NS)
        with pytest.raises(RdmaError, match="not for a XRC_TGT"):
            await one.accept(await p.target())
        one.reject()

    answering = cocotb.start_soon(target())
    with pytest.raises(Rejected):
        await p.agents[0].connect(plain, gid, PORT, space=SPACE)
    await answering
    p.listener.close()
    with pytest.raises(Rejected):
        await p.ask()
