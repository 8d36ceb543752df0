"""Each feature between two guest functions of one card, whose frames turn round inside it."""

import cocotb
import numpy as np

from hdl.abi.enums import WcStatus, WrOpcode
from sim.bench.system import Node, System
from tests.nic.bench_placement import Pair
from tests.nic.card import FUNCTIONS
from tests.nic.dc import Dc, all_free
from tests.nic.initiator import WITH_EVENTS
from tests.nic.mkeys import K1, K2, OPTIONS, PLAIN, MkeyPair, send_into
from tests.nic.mp_wr import MpWrPair
from tests.nic.xrc import Xrc


class Inside:
    """One card, as a system of its two functions."""

    @classmethod
    async def up(cls, dut):
        self = cls()
        self.system = await System.start(dut, FUNCTIONS, options=WITH_EVENTS)
        (card, self.other) = self.system.nodes
        second = Node(self.system.testbench, card.index, beside=card)
        await second.start(WITH_EVENTS)
        self.nodes = (card, second)
        self.before = await self.other.counters()
        return self

    async def stayed(self, least):
        """So many packets have turned round, and none has left the card."""
        counters = await self.nodes[0].counters()
        assert counters["loopback_packets"] >= least
        assert counters["tx_packets"] == counters["loopback_packets"]
        assert (await self.other.counters())["rx_packets"] == self.before.get("rx_packets", 0)


async def arrives(p, receiver, at, length, to):
    """A SEND to one of several receivers, byte by byte."""
    await receiver.post(to)
    qp = p.ini if isinstance(p, Xrc) else p.qp
    await qp.post_send(p.send(at, length, 7, to=to))
    await p.good()
    (wc,) = await receiver.done()
    assert (wc.wr_id, wc.status, wc.byte_len) == (to, WcStatus.SUCCESS, length)
    assert np.array_equal(receiver.mr.read(length, 1024 * to), p.data[at : at + length])


@cocotb.test()
async def xrc(dut):
    """SENDs to the receive queues of two processes, and a WRITE and a READ."""
    inside = await Inside.up(dut)
    p = await Xrc.on(inside.system, inside.nodes)
    for to, process in enumerate(p.processes):
        await arrives(p, process, 300 * to, 900 + to, to)
    theirs = p.processes[1].mr
    await p.ini.post_send(p.request(WrOpcode.RDMA_WRITE, 4000, 3000, 8, to=1))
    await p.good()
    assert np.array_equal(theirs.read(3000, 4000), p.data[4000:7000])
    backwards = p.data[::-1].copy()
    theirs.write(backwards)
    await p.ini.post_send(p.request(WrOpcode.RDMA_READ, 8000, 2500, 9, to=1))
    await p.good()
    assert np.array_equal(p.mr.read(2500, 8000), backwards[8000:10500])
    await p.well()
    await inside.stayed(12)


@cocotb.test()
async def receives_for_several_packets(dut):
    """Messages of one packet and of several share requests of 8 KiB."""
    inside = await Inside.up(dut)
    p = await MpWrPair(inside.system, inside.nodes).prepare(8192, 512)
    await p.post(4)
    await p.send([3000, 1, 8192, 512, 0, 700])
    await p.check()
    await p.well()
    await inside.stayed(8)


@cocotb.test()
async def indirect_keys(dut):
    """A SEND into a layout, a WRITE from one into another, and a READ out of one."""
    inside = await Inside.up(dut)
    p = await MkeyPair.on(inside.system, inside.nodes, options=OPTIONS, access=PLAIN)
    await p.prepare()
    for side, layout in enumerate((K1, K2)):
        await p.lay(side, layout)
    await send_into(p, K2, 11, 800)
    p.fill()
    wanted = p.scattered(1, K2, 5, p.gathered(0, K1, 90, 1000))
    remote = (p.mkeys[1].key, 5)
    await p.do(WrOpcode.RDMA_WRITE, [p.mkeys[0].sge(90, 1000)], remote)
    p.same(p.mrs[1], wanted)
    p.fill()
    await p.do(WrOpcode.RDMA_READ, [p.flat[0].sge(0, 900)], (p.mkeys[1].key, 100))
    p.same(p.flat[0], p.gathered(1, K2, 100, 900))
    await p.well()
    await inside.stayed(6)


@cocotb.test()
async def dynamic_connections(dut):
    """An initiator of one function, and two targets of the other one, in turn."""
    inside = await Inside.up(dut)
    p = await Dc.on(inside.system, inside.nodes[0], [inside.nodes[1]] * 2)
    p.nodes = inside.nodes
    for n in range(4):
        await arrives(p, p.targets[n % 2], 500 * n, 600 + n, n % 2)
    await all_free(p)
    await p.well()
    await inside.stayed(16)


@cocotb.test()
async def flush_and_atomic_write(dut):
    """A WRITE and its FLUSH, and a word that is written at once."""
    inside = await Inside.up(dut)
    p = await Pair.on(inside.system, inside.nodes)
    octets = p.randomize(0, 1)
    await p.qps[0].post_send([p.write(100, 3000), p.flush(100, 3000, 1)])
    await p.good()
    assert np.array_equal(p.mrs[1].read(3000, 100), octets[100:3100])
    await p.qps[0].post_send(p.store(64, 0x1122334455667788, 2))
    await p.good()
    assert p.word(64) == 0x1122334455667788
    await p.well()
    await inside.stayed(6)
