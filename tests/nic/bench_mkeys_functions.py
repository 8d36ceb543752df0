"""Indirect keys of two guest functions of a card: each has its own entries; packed rings."""

import cocotb
import numpy as np
import pytest

from hdl.abi.enums import Access, WcStatus, WrOpcode
from hdl.abi.virtio_pci import Feature
from sim.bench.system import Node, System
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.driver.errors import CommandError
from sim.guest.verbs import (
    CQ,
    MR,
    QP,
    SGE,
    AHAttr,
    GlobalRoute,
    Mkey,
    QPAttr,
    QPCap,
    QPInitAttr,
    SendWR,
)
from tests.layouts import Layout, Piece
from tests.nic.card import FUNCTIONS
from tests.nic.mkeys import OPTIONS, PLAIN, SIZE

#: MEMCPY moves bytes without a peer.
PACKED = DriverOptions(features=ALL_FEATURES | Feature.RING_PACKED.mask)
WAIT_NS = 2_000_000
LAYOUTS = (
    Layout([Piece(0, 30), Piece(500, 70)]),
    Layout([Piece(1000, 10, skip=3), Piece(4000, 15, skip=1)], repeat=4),
)


class Guest:
    """A function with a region, a plain one, an indirect key, and a queue pair without a peer."""

    @classmethod
    async def up(cls, node, seed):
        self = cls()
        self.node, self.pd = node, await node.context.alloc_pd()
        self.cq = await CQ.create(node.context, 64)
        self.source, self.flat = [await MR.create(self.pd, SIZE, PLAIN) for _ in range(2)]
        self.mkey = await Mkey.create(self.pd, 8)
        self.octets = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
        self.source.write(self.octets)
        await self.connect()
        return self

    async def connect(self):
        cap = QPCap(max_send_wr=16, max_recv_wr=1, max_send_sge=2, max_recv_sge=1)
        self.qp = await QP.create(self.pd, QPInitAttr(OPTIONS.type, self.cq, self.cq, cap, 0, None))
        route = GlobalRoute(dgid=self.node.context.query_gid(1, 0), sgid_index=0)
        attr = QPAttr(
            path_mtu=OPTIONS.mtu,
            dest_qp_num=self.qp.qp_num,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
            timeout=14,
            ah_attr=AHAttr(gr=route, roce_dmac=self.node.mac),
        )
        await self.qp.to_rts(attr)

    async def ends(self, wr, status=WcStatus.SUCCESS):
        await self.qp.post_send(wr)
        (wc,) = await self.cq.wait(1, timeout_ns=WAIT_NS)
        assert wc.status == status, wc

    async def lay(self, layout, key=None):
        """Gives its key a layout of its region, as rows."""
        slots = []
        for one in layout.pieces:
            lkey = self.source.lkey if key is None else key
            slots += [SGE(self.source.iova + one.addr, one.count, lkey), SGE(one.skip, 0, 0)]
        wr = SendWR(0, WrOpcode.MKEY_INTERLEAVED, slots)
        mkey, count = self.mkey, len(layout.pieces)
        wr.set_wr_mkey(mkey.mrn, mkey.key, Access.LOCAL_WRITE, layout.repeat, count, 0)
        await self.ends(wr)

    def copy(self, length):
        wr = SendWR(0, WrOpcode.MEMCPY)
        wr.set_wr_memcpy(self.flat.sge(0, length), self.mkey.sge(0, length))
        return wr

    def list_wr(self, layout, mkey=None):
        """A request that gives its key, or another one, a layout of its region, as a list."""
        key, mr = mkey or self.mkey, self.source
        entries = [SGE(mr.iova + one.addr, one.count, mr.lkey) for one in layout.pieces]
        return key.list_wr(entries, Access.LOCAL_WRITE)

    async def gathers(self, layout):
        """Copies its layout, and compares."""
        self.flat.fill()
        await self.ends(self.copy(layout.total))
        wanted = self.octets[layout.addresses(0, layout.total)]
        assert np.array_equal(self.flat.read(layout.total), wanted)


async def two(dut):
    """A card with two functions, and a guest on each."""
    system = await System.start(dut, FUNCTIONS)
    second = Node(system.testbench, 0, beside=system.nodes[0])
    await second.start()
    nodes = (*system.nodes, second)
    for node in nodes:
        node.host.set(mmio_latency_ns=0)
    return nodes, [await Guest.up(node, n) for n, node in enumerate((system.nodes[0], second))]


@cocotb.test()
async def two_functions(dut):
    """T-K7: keys of both have the same numbers, and each has its own layout. The key of a region
    that only the other one has is none in an entry."""
    nodes, guests = await two(dut)
    first, other = guests
    assert first.mkey.key == other.mkey.key and first.source.lkey == other.source.lkey
    for turn in range(3):
        for n, guest in enumerate(guests):
            await guest.lay(LAYOUTS[(n + turn) % 2])
        for n, guest in enumerate(guests):
            await guest.gathers(LAYOUTS[(n + turn) % 2])
    more = await MR.create(other.pd, SIZE, PLAIN)
    await first.lay(LAYOUTS[0], key=more.lkey)
    await first.ends(first.copy(10), WcStatus.LOC_PROT_ERR)
    # A function that is reset has no key any more, and the other one's stays.
    await first.node.context.close()
    await first.node.start()
    again = await Guest.up(first.node, 9)
    await again.ends(again.copy(10), WcStatus.LOC_PROT_ERR)
    await other.gathers(LAYOUTS[1])
    for node in nodes:
        assert not node.host.faults


@cocotb.test()
async def keys_of_another_function(dut):
    """T-K7, K-5: a function gives no layout to a key that only the other one has, and destroys
    none; the other one goes on with it."""
    nodes, (first, other) = await two(dut)
    more = await Mkey.create(other.pd, 8)
    assert more.mrn != first.mkey.mrn
    strange = Mkey(first.pd, more.mrn, more.key, 8)
    await other.lay(LAYOUTS[1])
    await other.ends(other.list_wr(LAYOUTS[0], more))
    await first.ends(first.list_wr(LAYOUTS[0], strange), WcStatus.MW_BIND_ERR)
    with pytest.raises(CommandError):
        await strange.close()
    await first.connect()
    await first.lay(LAYOUTS[0])
    await first.gathers(LAYOUTS[0])
    await other.gathers(LAYOUTS[1])
    other.mkey = more
    await other.gathers(LAYOUTS[0])
    for node in nodes:
        assert not node.host.faults


@cocotb.test()
async def packed_rings(dut):
    """Requests for layouts in a packed ring of 16 places, which they fill more than twice; some
    have as many entries as there can be."""
    system = await System.start(dut, FUNCTIONS, options=PACKED)
    (node, _) = system.nodes
    node.host.set(mmio_latency_ns=0)
    assert node.context.device.features & Feature.RING_PACKED.mask
    guest = await Guest.up(node, 5)
    wide = guest.mkey = await Mkey.create(guest.pd, 32)
    for turn in range(8):
        many = Layout([Piece(7 * turn + 50 * n, n % 5) for n in range(32)])
        for layout in (many, Layout([Piece(turn, 100 + turn)])):
            await guest.ends(guest.list_wr(layout, wide))
            await guest.gathers(layout)
        await guest.lay(LAYOUTS[1])
        await guest.gathers(LAYOUTS[1])
    for one in system.nodes:
        assert not one.host.faults
