"""Two whole cards of which either may have indirect keys."""

from __future__ import annotations

import numpy as np

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions
from sim.guest.verbs import MR, SGE, Interleaved, Mkey, RecvWR, SendWR
from tests.layouts import Layout, Piece
from tests.nic.bench_placement import PLAIN, QUIET, Pair
from tests.nic.card import ALL

OPTIONS = QpOptions(access=PLAIN, timeout=3, max_rd_atomic=16)
SIZE, EMPTY = 1 << 16, 0xEE
PROTECTION, ACCESS = WcStatus.LOC_PROT_ERR, WcStatus.REM_ACCESS_ERR
BIND, OPERATION = WcStatus.MW_BIND_ERR, WcStatus.LOC_QP_OP_ERR

#: K1, K2 and K3 of the specification; addresses are offsets in a region.
K1 = Layout([Piece(0, 100), Piece(0x2000, 0), Piece(0x3000, 28), Piece(0x4000, 4096)])
K2 = Layout([Piece(0, 512, skip=4), Piece(0x2000, 8)], repeat=2)
K3 = Layout([Piece(0, 8, skip=2), Piece(64, 8, skip=2)], repeat=3)


class MkeyPair(Pair):
    """Each side has a region ``mrs[side]``, a plain buffer ``flat[side]`` and an indirect key
    ``mkeys[side]``. ``octets[side]``: what lies in the region."""

    @classmethod
    async def ready(cls, dut, *, options=OPTIONS, config=ALL, **bench):
        self = await cls.up(dut, options=options, config=config, access=PLAIN, **bench)
        return await self.prepare()

    async def prepare(self):
        """Regions, buffers and keys."""
        self.mrs = [await MR.create(pd, SIZE, PLAIN, offset=24) for pd in self.pds]
        self.flat = [await MR.create(pd, SIZE, PLAIN, offset=7) for pd in self.pds]
        self.mkeys = [await Mkey.create(pd, 32) for pd in self.pds]
        self.octets = [
            np.random.default_rng(side).integers(0, 256, SIZE, np.uint8) for side in (0, 1)
        ]
        self.fill()
        return self

    def fill(self):
        for side in (0, 1):
            self.mrs[side].write(self.octets[side])
            self.flat[side].write(np.full(SIZE, EMPTY, np.uint8))

    def layout_wr(self, side, layout, access=PLAIN, *, mkey=None, mr=None, number=0, **more):
        """A request that gives a key of this side a layout of pieces of its region."""
        mkey, mr = mkey or self.mkeys[side], mr or self.mrs[side]
        pieces = layout.pieces
        if layout.repeat == 1 and not any(piece.skip for piece in pieces):
            sges = [SGE(mr.iova + one.addr, one.count, one.key or mr.lkey) for one in pieces]
            return mkey.list_wr(sges, access, wr_id=number, **more)
        entries = [
            Interleaved(mr.iova + one.addr, one.count, one.skip, one.key or mr.lkey)
            for one in pieces
        ]
        return mkey.interleaved_wr(entries, layout.repeat, access, wr_id=number, **more)

    async def lay(self, side, layout, access=PLAIN, **more):
        """Gives a key of this side a layout."""
        await self.qps[side].post_send(self.layout_wr(side, layout, access, **more))
        await self.good(side=side)

    def gathered(self, side, layout, offset, length):
        """The bytes of a range of the layout, as they were at first."""
        return self.octets[side][layout.addresses(offset, length)]

    def scattered(self, side, layout, offset, data):
        """The region when ``data`` have been written to a range of the layout."""
        found = self.octets[side].copy()
        found[layout.addresses(offset, len(data))] = data
        return found

    def request(self, opcode, sges, remote=None, *, number=0, flags=SendFlags.SIGNALED):
        """A request; ``remote``: key and address."""
        wr = SendWR(number, opcode, sges, flags)
        if remote is not None:
            wr.set_remote(*remote)
        return wr

    async def do(self, opcode, sges, remote=None, **more):
        """A request of the first side, which ends well."""
        await self.qps[0].post_send(self.request(opcode, sges, remote, **more))
        return await self.good()

    async def refused(self, status, opcode, sges, remote=None, *, receive=None):
        """On connections of its own such a request ends with ``status``."""
        await self.connect(OPTIONS)
        if receive is not None:
            await self.qps[1].post_recv(RecvWR(1, receive))
        await self.qps[0].post_send(self.request(opcode, sges, remote))
        (wc,) = await self.done()
        assert wc.status == status, wc
        if receive is not None:
            return await self.done(side=1)
        return []

    def same(self, mr, wanted):
        assert np.array_equal(mr.read(len(wanted)), wanted)


async def send_into(p, layout, offset, length):
    """A SEND of plain bytes into the layout of the second side."""
    data = p.octets[0][:length]
    await p.qps[1].post_recv(RecvWR(1, [p.mkeys[1].sge(offset, length)]))
    await p.do(WrOpcode.SEND, [p.mrs[0].sge(0, length)])
    await p.good(side=1)
    p.same(p.mrs[1], p.scattered(1, layout, offset, data))


__all__ = [
    "ACCESS",
    "BIND",
    "K1",
    "K2",
    "K3",
    "OPERATION",
    "OPTIONS",
    "PLAIN",
    "PROTECTION",
    "QUIET",
    "SIZE",
    "Access",
    "MkeyPair",
    "send_into",
]
