"""Indirect keys on whole cards: what is refused, when, and what it leaves."""

import errno
from dataclasses import replace

import cocotb
import numpy as np
import pytest

from hdl.abi.enums import (
    Access,
    FlushType,
    MwType,
    QpType,
    RdmaFeature,
    SendFlags,
    WcStatus,
    WrOpcode,
)
from hdl.abi.mkeys import LayoutFlags
from sim.bench.system import QpOptions, System, join, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import (
    CQ,
    MR,
    MW,
    QP,
    SGE,
    XRCD,
    CommandError,
    FastMR,
    Interleaved,
    Mkey,
    QPInitAttr,
    RdmaError,
    RecvWR,
    SendWR,
)
from tests.layouts import Layout, Piece
from tests.nic.card import ALL
from tests.nic.mkeys import ACCESS, BIND, K3, OPERATION, OPTIONS, PLAIN, PROTECTION, QUIET, MkeyPair
from tests.slow import QUICK

PAIR = Layout([Piece(0, 100), Piece(0x2000, 60)])
OTHER = Layout([Piece(0x5000, 40), Piece(0x1000, 130)])
READ, WRITE, SEND = WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE, WrOpcode.SEND
LOCAL, REMOTE_WRITE = Access.LOCAL_WRITE, Access.REMOTE_WRITE
REMOTE_READ, REMOTE_ATOMIC = Access.REMOTE_READ, Access.REMOTE_ATOMIC


async def reads(p, layout, *, mkey=None, length=None):
    """The first side reads the whole layout of the second one."""
    p.flat[0].fill()
    length = length or layout.total
    await p.do(READ, [p.flat[0].sge(0, length)], ((mkey or p.mkeys[1]).rkey, 0))
    p.same(p.flat[0], p.gathered(1, layout, 0, length))


async def read_fails(p, *, mkey=None, offset=0, length=16):
    """The second side's layout cannot be read; the connections are new afterwards."""
    await p.refused(ACCESS, READ, [p.flat[0].sge(0, length)], ((mkey or p.mkeys[1]).rkey, offset))
    await p.connect(OPTIONS)


async def layout_fails(p, wr, status=BIND):
    """On connections of its own a request of the second side ends with ``status``."""
    await p.connect(OPTIONS)
    await p.qps[1].post_send(wr)
    (wc,) = await p.done(side=1)
    assert wc.status == status, wc
    await p.connect(OPTIONS)


@cocotb.test()
async def t_k5_invalidation(dut):
    """T-K5: before it has a layout, and after LOCAL_INV, a use fails. Another layout, behind
    LOCAL_INV or not, is used then. CHECK_FREE refuses a key that has one, which stays."""
    p = await MkeyPair.ready(dut)
    await read_fails(p)
    await p.lay(1, PAIR, flags=LayoutFlags.CHECK_FREE)
    await reads(p, PAIR)
    for _ in range(2):  # the second time it has none
        await p.qps[1].post_send(p.mkeys[1].local_inv_wr())
        await p.good(side=1)
    await read_fails(p)
    await p.lay(1, OTHER)
    await reads(p, OTHER)
    await p.lay(1, K3)
    await reads(p, K3)
    await layout_fails(p, p.layout_wr(1, PAIR, flags=LayoutFlags.CHECK_FREE))
    await reads(p, K3)
    # A READ of the own side that invalidates its key behind it.
    wr = p.request(WrOpcode.RDMA_READ_WITH_INV, [p.flat[1].sge(0, 8)])
    wr.set_remote(p.mrs[0].rkey, p.mrs[0].iova)
    wr.invalidate_rkey = p.mkeys[1].key
    await p.qps[1].post_send(wr)
    await p.good(side=1)
    await read_fails(p)
    await p.well()


@cocotb.test()
async def t_k6_invalidation_by_the_peer(dut):
    """T-K6: SEND_WITH_INV takes the layout away, if the key was made so; else it is refused, and
    the layout stays."""
    p = await MkeyPair.ready(dut)
    open_, shut = await Mkey.create(p.pds[1], 4, remote_invalidate=True), p.mkeys[1]
    for mkey in (open_, shut):
        await p.lay(1, PAIR, mkey=mkey)
    for mkey, status in ((open_, WcStatus.SUCCESS), (shut, WcStatus.REM_ACCESS_ERR)):
        await p.connect(OPTIONS)
        await p.qps[1].post_recv(RecvWR(1, [p.flat[1].sge(0, 16)]))
        wr = p.request(WrOpcode.SEND_WITH_INV, [p.flat[0].sge(0, 16)])
        wr.invalidate_rkey = mkey.key
        await p.qps[0].post_send(wr)
        (wc,) = await p.done()
        assert wc.status == status, wc
        (wc,) = await p.done(side=1)
        assert wc.status == (WcStatus.REM_INV_REQ_ERR if status else WcStatus.SUCCESS), wc
    await read_fails(p, mkey=open_)
    await reads(p, PAIR)
    await p.lay(1, OTHER, mkey=open_)
    await reads(p, OTHER, mkey=open_)
    await p.well()


@cocotb.test(skip=QUICK)
async def t_k7_entries(dut):
    """T-K7: an entry of another domain, of a region that has gone, of a window, of an indirect key,
    of a region without a key, or beyond its region fails at its use, and what is in front of it
    works. An entry of no bytes may have any key."""
    p = await MkeyPair.ready(dut)
    pd, there = p.pds[1], p.nodes[1].context
    stranger = await MR.create(await there.alloc_pd(), 4096, PLAIN)
    gone = await MR.create(pd, 4096, PLAIN)
    parent = await MR.create(pd, 4096, PLAIN | Access.MW_BIND)
    window = await MW.create(pd, MwType.TYPE_1)
    other, fast = await Mkey.create(pd, 4), await FastMR.create(pd, 4)
    await p.lay(1, PAIR, mkey=other)
    await p.qps[1].post_send(window.bind_wr(parent, 0, 4096, REMOTE_READ | REMOTE_WRITE))
    await p.good(side=1)
    mine = p.mrs[1]
    cases = [
        SGE(stranger.iova, 16, stranger.lkey),
        SGE(gone.iova, 16, gone.lkey),
        SGE(window.iova, 16, window.key),
        SGE(0, 16, other.lkey),
        SGE(0, 16, p.mkeys[1].lkey),
        SGE(0, 16, fast.key),
        SGE(mine.iova + mine.length - 15, 16, mine.lkey),
        SGE(mine.iova, 16, mine.lkey ^ 1),
        SGE((1 << 64) - 8, 16, mine.lkey),
    ]
    await gone.close()
    for bad in cases:
        wr = p.mkeys[1].list_wr([mine.sge(0, 16), bad, mine.sge(64, 16)], PLAIN)
        await p.qps[1].post_send(wr)
        await p.good(side=1)
        p.fill()
        await reads(p, Layout([Piece(0, 16)]))
        await read_fails(p, offset=8, length=24)
        write = [p.flat[0].sge(0, 40)]
        await p.refused(ACCESS, WRITE, write, (p.mkeys[1].rkey, 0))
        await p.connect(OPTIONS)
        p.same(mine, p.octets[1])
    empty = [mine.sge(0, 16), SGE(1, 0, 0xFFFF_FFFF), mine.sge(64, 16)]
    await p.qps[1].post_send(p.mkeys[1].list_wr(empty, PLAIN))
    await p.good(side=1)
    await reads(p, Layout([Piece(0, 16), Piece(64, 16)]))
    # Nobody can bind a window to it.
    await layout_fails(p, bind_to(p.mkeys[1], window))
    await p.well()


def bind_to(mkey, window):
    """A request that would bind a window to an indirect key."""
    wr = SendWR(1, WrOpcode.BIND_MW)
    wr.set_wr_bind(mkey.lkey, 0, 16, REMOTE_READ, window.key)
    return wr


@cocotb.test()
async def t_k8_atomics(dut):
    """T-K8: an atomic in an entry; one whose word lies in two; one at a multiple of 8 of the layout
    that is none of memory; one at an odd offset. The same of ATOMIC WRITE, and FLUSH."""
    p = await MkeyPair.ready(dut)
    layout = Layout([Piece(0, 12), Piece(0x100, 12), Piece(0x204, 32)])
    await p.lay(1, layout)
    key, sink = p.mkeys[1].rkey, [p.flat[0].sge(0, 8)]

    def fetch(offset):
        wr = p.request(WrOpcode.ATOMIC_FETCH_AND_ADD, sink)
        wr.set_wr_atomic(key, offset, 5)
        return wr

    def store(offset):
        wr = SendWR(0, WrOpcode.ATOMIC_WRITE)
        wr.set_wr_atomic_write(key, offset, b"\x11" * 8)
        return wr

    before = int.from_bytes(p.octets[1][:8].tobytes(), "little")
    await p.ends(fetch(0), WcStatus.SUCCESS, OPTIONS)
    assert p.flat[0].read(8).tobytes() == p.octets[1][:8].tobytes()
    after = ((before + 5) & (1 << 64) - 1).to_bytes(8, "little")
    assert p.mrs[1].read(8).tobytes() == after
    for operation in (fetch, store):
        p.fill()
        await p.ends(operation(8), ACCESS, OPTIONS)  # in two entries
        await p.ends(operation(24), ACCESS, OPTIONS)  # at an odd place of memory
        await p.ends(operation(4), WcStatus.REM_INV_REQ_ERR, OPTIONS)
        await p.ends(operation(56), ACCESS, OPTIONS)  # beyond
        p.same(p.mrs[1], p.octets[1])
    await p.ends(store(0), WcStatus.SUCCESS, OPTIONS)
    assert p.mrs[1].read(8).tobytes() == b"\x11" * 8
    # Its result may go to several entries of the own side.
    await p.lay(0, Layout([Piece(16, 3), Piece(80, 5)]))
    wr = p.request(WrOpcode.ATOMIC_FETCH_AND_ADD, [p.mkeys[0].sge(0, 8)])
    wr.set_wr_atomic(key, 0, 1)
    await p.qps[0].post_send(wr)
    await p.good()
    assert p.mrs[0].read(3, 16).tobytes() + p.mrs[0].read(5, 80).tobytes() == b"\x11" * 8
    flush = SendWR(0, WrOpcode.FLUSH)
    flush.set_wr_flush(key, 0, 8, FlushType.GLOBAL)
    assert (await refused_or_not(p, flush)) == ACCESS
    await p.well()


async def refused_or_not(p, wr):
    """How a request ends on a connection of its own whose peer allows everything."""
    flushes = Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
    await p.connect(replace(OPTIONS, access=PLAIN | flushes))
    await p.qps[0].post_send(wr)
    (wc,) = await p.done()
    return wc.status


@cocotb.test()
async def t_k9_refused(dut):
    """T-K9: each rule of a request that sets a layout. It ends with MW_BIND_ERR, and the layout
    that there was stays."""
    p = await MkeyPair.ready(dut)
    few = await Mkey.create(p.pds[1], 2)
    strange = await Mkey.create(await p.nodes[1].context.alloc_pd(), 4)
    await p.lay(1, PAIR)
    await p.lay(1, PAIR, mkey=few)
    mr, mkey = p.mrs[1], p.mkeys[1]
    good = [mr.sge(0, 16), mr.sge(64, 16)]
    rows = [Interleaved(mr.iova, 8, 8, mr.lkey)] * 2

    def listed(key=mkey, entries=good, access=PLAIN, flags=0):
        return key.list_wr(entries, access, flags=flags)

    def changed(**fields):
        wr, of = listed(), {"mrn": mkey.mrn, "key": mkey.key, "access": PLAIN, "repeat": 0}
        wr.set_wr_mkey(**of | {"entries": 2, "flags": 0} | fields)
        return wr

    def repeated(repeat, *, count=8, skip=8, entries=2, last=0):
        wr = mkey.interleaved_wr(rows, repeat, PLAIN)
        slots = [SGE(mr.iova, count, mr.lkey), SGE(skip | last << 32, 0, 0)] * entries
        wr.sg = slots
        wr.set_wr_mkey(mkey.mrn, mkey.key, PLAIN, repeat, entries, 0)
        return wr

    none = listed(entries=[])
    for wr in (
        none,
        listed(few, [mr.sge(0, 8)] * 3),
        listed(strange),
        listed(access=PLAIN | 1 << 5),
        listed(access=REMOTE_WRITE),
        listed(access=REMOTE_ATOMIC | REMOTE_READ),
        listed(flags=2),
        listed(entries=[SGE(0, (1 << 31) + 1, mr.lkey)]),
        changed(key=mkey.key ^ 1),
        changed(key=few.key),
        changed(mrn=few.mrn),
        changed(repeat=1),
        changed(mrn=mr.mrn, key=mr.lkey),
        repeated((1 << 32) - 1, count=1 << 30, skip=0),
        repeated(1, count=1 << 31, skip=1 << 31),
        repeated(1, count=1 << 31, skip=0),  # a row of 2**32 bytes
        repeated(1 << 31, count=1 << 15, skip=0),  # 2**47 bytes
        repeated(1, last=1),
    ):
        await layout_fails(p, wr)
    # What the element itself contradicts.
    odd = changed(entries=3)
    inline = replace(listed(), send_flags=SendFlags.SIGNALED | SendFlags.INLINE, inline_data=b"")
    for wr in (odd, inline, changed(entries=1 << 15)):
        await layout_fails(p, wr, OPERATION)
    for key in (mkey, few):
        await reads(p, PAIR, mkey=key)
    # The largest that is legal, and one of no bytes.
    await p.qps[1].post_send(repeated((1 << 31) - 1, count=1 << 15, skip=0))
    await p.good(side=1)
    await p.qps[1].post_send(repeated(0))
    await p.good(side=1)
    await read_fails(p, length=1)
    with pytest.raises(RdmaError) as caught:
        await p.qps[1].post_send(mkey.list_wr([mr.sge(0, 1)] * 33, PLAIN))
    assert caught.value.errno == errno.ENOMEM
    await p.lay(1, Layout([Piece(97 * n, 7) for n in range(32)]))
    await reads(p, Layout([Piece(97 * n, 7) for n in range(32)]))
    await p.well()


@cocotb.test()
async def t_k10_in_a_batch(dut):
    """T-K10: layout, WRITE, layout, WRITE in one batch: each WRITE has the layout before it."""
    p = await MkeyPair.ready(dut)
    layouts = [PAIR, OTHER, K3, Layout([Piece(3 * n, 2, skip=1) for n in range(8)], repeat=2)]
    place, batch = 0, []
    for number, layout in enumerate(layouts):
        batch.append(p.layout_wr(0, layout, send_flags=QUIET))
        remote = (p.flat[1].rkey, p.flat[1].iova + place)
        source = [p.mkeys[0].sge(0, layout.total)]
        last = number == len(layouts) - 1
        flags = SendFlags.SIGNALED if last else QUIET
        batch.append(p.request(WRITE, source, remote, number=number, flags=flags))
        place += layout.total
    await p.qps[0].post_batch(batch)
    await p.good()
    wanted = np.concatenate([p.gathered(0, one, 0, one.total) for one in layouts])
    p.same(p.flat[1], wanted)
    await p.well()


@cocotb.test()
async def t_k11_other_types(dut):
    """T-K11: UC, UD and XRC have no layouts: LOC_QP_OP_ERR; nor has who did not negotiate it."""
    p = await MkeyPair.ready(dut)
    for kind in (QpType.UC, QpType.UD):
        wr = p.layout_wr(0, PAIR)
        await p.ends(wr, OPERATION, QpOptions(type=kind, access=PLAIN))
    xrcd = await XRCD.create(p.nodes[1].context)
    target = QPInitAttr(QpType.XRC_TGT, xrcd=xrcd)
    ini, tgt = await together(
        QP.create(p.pds[0], QPInitAttr(QpType.XRC_INI, p.cqs[0])), QP.create(p.pds[1], target)
    )
    await join(p.nodes, (ini, tgt), OPTIONS)
    await ini.post_send(p.layout_wr(0, Layout([Piece(0, 100)])))
    (wc,) = await p.done()
    assert wc.status == OPERATION
    await read_fails(p, mkey=p.mkeys[0])
    await p.well()


@cocotb.test()
async def not_negotiated(dut):
    """A driver that has not taken the feature: there is no key, and the request is unknown."""
    old = DriverOptions(features=ALL_FEATURES & ~RdmaFeature.MKEY.mask)
    p = MkeyPair()
    p.system = await System.start(dut, ALL, options=old)
    p.nodes = p.system.nodes
    p.pds = [await node.context.alloc_pd() for node in p.nodes]
    p.cqs = [await CQ.create(node.context, 16) for node in p.nodes]
    with pytest.raises(CommandError):
        await Mkey.create(p.pds[0], 4)
    wr = SendWR(0, WrOpcode.MKEY_LIST, [SGE(0, 8, 0)])
    wr.set_wr_mkey(1, 0x101, PLAIN, 0, 1, 0)
    await p.ends(wr, OPERATION, OPTIONS)
    await p.well()


@cocotb.test()
async def t_k13_many_pieces(dut):
    """T-K13: a packet of entries of one byte: 64 of them are as many as one may have. Not a byte of
    one with more is written; a message of several packets may have as many as it likes."""
    options = replace(OPTIONS, mtu=1)  # 256 bytes
    p = await MkeyPair.ready(dut, options=options)
    single = Layout([Piece(0, 1, skip=3)], repeat=4096)
    await p.lay(1, single)
    key = p.mkeys[1].rkey
    p.fill()
    await p.do(WRITE, [p.mrs[0].sge(0, 64)], (key, 100))
    p.same(p.mrs[1], p.scattered(1, single, 100, p.octets[0][:64]))
    p.fill()
    await p.refused(ACCESS, WRITE, [p.mrs[0].sge(0, 65)], (key, 100))
    p.same(p.mrs[1], p.octets[1])
    wide = Layout([Piece(0, 4, skip=3)], repeat=2000)
    await p.connect(options)
    await p.lay(1, wide)
    await p.do(WRITE, [p.mrs[0].sge(0, 6000)], (key, 256))
    p.same(p.mrs[1], p.scattered(1, wide, 256, p.octets[0][:6000]))
    await p.well()


@cocotb.test(skip=QUICK)
async def t_k14_rights(dut):
    """T-K14: none, LOCAL_WRITE, and each remote right with it: only what is granted is possible.
    Regions of entries need local write to be changed, and no remote right."""
    p = await MkeyPair.ready(dut)
    mr, key = await MR.create(p.pds[1], 4096, LOCAL), p.mkeys[1]
    readable = await MR.create(p.pds[1], 4096, Access(0))
    layout = Layout([Piece(0, 64), Piece(128, 64)])
    flat = p.flat[0]

    def atomic():
        wr = p.request(WrOpcode.ATOMIC_FETCH_AND_ADD, [flat.sge(0, 8)])
        wr.set_wr_atomic(key.rkey, 0, 1)
        return wr

    for access in (
        Access(0),
        LOCAL,
        REMOTE_READ,
        LOCAL | REMOTE_READ,
        LOCAL | REMOTE_WRITE,
        LOCAL | REMOTE_ATOMIC,
    ):
        await p.connect(OPTIONS)
        await p.lay(1, layout, access, mr=mr)
        for right, wr in (
            (REMOTE_READ, p.request(READ, [flat.sge(0, 128)], (key.rkey, 0))),
            (REMOTE_WRITE, p.request(WRITE, [flat.sge(0, 128)], (key.rkey, 0))),
            (REMOTE_ATOMIC, atomic()),
        ):
            await p.ends(wr, WcStatus.SUCCESS if access & right else ACCESS, OPTIONS)
        await p.connect(OPTIONS)
        await p.qps[1].post_recv(RecvWR(1, [key.sge(0, 128)]))
        await p.qps[0].post_send(p.request(SEND, [flat.sge(0, 128)]))
        (wc,) = await p.done()
        assert wc.status == (WcStatus.SUCCESS if access & LOCAL else WcStatus.REM_OP_ERR), access
        (wc,) = await p.done(side=1)
        assert wc.status == (WcStatus.SUCCESS if access & LOCAL else PROTECTION), access
    # The key grants everything, the region only to be read.
    await p.connect(OPTIONS)
    await p.lay(1, layout, PLAIN, mr=readable)
    await p.do(READ, [flat.sge(0, 128)], (key.rkey, 0))
    await p.refused(ACCESS, WRITE, [flat.sge(0, 128)], (key.rkey, 0))
    await p.ends(atomic(), ACCESS, OPTIONS)
    # A queue pair that grants nothing: the peer's way to the key is shut.
    await p.connect(replace(OPTIONS, access=LOCAL))
    await p.lay(1, layout, PLAIN, mr=mr)
    await p.qps[0].post_send(p.request(READ, [flat.sge(0, 8)], (key.rkey, 0)))
    (wc,) = await p.done()
    assert wc.status in (ACCESS, WcStatus.REM_INV_REQ_ERR)
    await p.well()


@cocotb.test()
async def t_k16_destruction(dut):
    """T-K16: DEREG_MR of the key, and of a region of its entries; DESTROY_PD with a key in it."""
    p = await MkeyPair.ready(dut)
    there = p.nodes[1].context
    pd = await there.alloc_pd()
    key = await Mkey.create(pd, 4)
    with pytest.raises(CommandError):
        await pd.close()
    await key.close()
    await pd.close()
    await p.lay(1, PAIR)
    await reads(p, PAIR)
    mine = await MR.create(p.pds[1], 4096, PLAIN)
    await p.qps[1].post_send(p.mkeys[1].list_wr([mine.sge(0, 64)], PLAIN))
    await p.good(side=1)
    await mine.close()
    await read_fails(p)
    await p.lay(1, PAIR)
    await reads(p, PAIR)
    await p.mkeys[1].close()
    await read_fails(p)
    again = await Mkey.create(p.pds[1], 4)
    assert again.mrn == p.mkeys[1].mrn and again.key != p.mkeys[1].key
    await read_fails(p, mkey=again)
    await p.lay(1, OTHER, mkey=again)
    await reads(p, OTHER, mkey=again)
    await read_fails(p)
    await p.well()


@cocotb.test()
async def copies(dut):
    """MEMCPY from a layout into another one, and one that is too long."""
    p = await MkeyPair.ready(dut)
    there = await Mkey.create(p.pds[0], 8)
    target = Layout([Piece(0x8000, 70, skip=5)], repeat=3)
    await p.lay(0, PAIR)
    await p.lay(0, target, mkey=there)

    def copy(length):
        wr = SendWR(0, WrOpcode.MEMCPY)
        wr.set_wr_memcpy(there.sge(9, length), p.mkeys[0].sge(3, length))
        return wr

    await p.qps[0].post_send(copy(150))
    await p.good()
    p.same(p.mrs[0], p.scattered(0, target, 9, p.gathered(0, PAIR, 3, 150)))
    p.fill()
    await p.ends(copy(158), PROTECTION, OPTIONS)
    p.same(p.mrs[0], p.octets[0])
    await p.well()
