"""Indirect keys on whole cards: bytes by their formulas, at each place where a key may stand."""

import random
from dataclasses import replace

import cocotb
import numpy as np

from hdl.abi.enums import Mtu, WcOpcode, WcStatus, WrOpcode
from sim.guest.verbs import RecvWR
from sim.models.impairments import Impairments
from tests.layouts import Layout, Piece
from tests.nic.mkeys import ACCESS, K1, K2, K3, OPTIONS, PROTECTION, SIZE, MkeyPair, send_into
from tests.slow import QUICK

LAYOUTS = {"K1": K1, "K2": K2, "K3": K3}


@cocotb.test()
@cocotb.parametrize(name=[*LAYOUTS])
async def t_k1_local(dut, name):
    """T-K1: SEND from the layout, RECV into it, READ into it, WRITE from it."""
    p, layout = await MkeyPair.ready(dut), LAYOUTS[name]
    total = layout.total
    for side in (0, 1):
        await p.qps[side].post_send(p.layout_wr(side, layout, number=7))
        (wc,) = await p.good(side=side)
        assert (wc.wr_id, wc.opcode, wc.byte_len) == (7, WcOpcode.MKEY, 0)
    data = p.gathered(0, layout, 0, total)
    await p.qps[1].post_recv(RecvWR(1, [p.flat[1].sge(0, total)]))
    await p.do(WrOpcode.SEND, [p.mkeys[0].sge(0, total)])
    await p.good(side=1)
    p.same(p.flat[1], data)

    p.fill()
    await p.do(WrOpcode.RDMA_WRITE, [p.mkeys[0].sge(0, total)], (p.flat[1].rkey, p.flat[1].iova))
    p.same(p.flat[1], data)

    p.fill()
    await send_into(p, layout, 0, total)

    p.fill()
    source = (p.mrs[1].rkey, p.mrs[1].iova + 9)
    await p.do(WrOpcode.RDMA_READ, [p.mkeys[0].sge(0, total)], source)
    p.same(p.mrs[0], p.scattered(0, layout, 0, p.octets[1][9 : 9 + total]))
    await p.well()


@cocotb.test()
@cocotb.parametrize(mtu=[Mtu.MTU_1024] if QUICK else [Mtu.MTU_256, Mtu.MTU_1024, Mtu.MTU_4096])
async def t_k2_remote(dut, mtu):
    """T-K2: WRITE and READ of a peer at offsets 0, 4, 500 and the last byte, and one beyond."""
    options = replace(OPTIONS, mtu=mtu)
    p = await MkeyPair.ready(dut, options=options)
    for layout in LAYOUTS.values():
        await p.lay(1, layout)
        total, key = layout.total, p.mkeys[1].rkey
        for offset in (0, 4, 500, total - 1):
            if offset >= total:
                continue
            length = total - offset
            p.fill()
            await p.do(WrOpcode.RDMA_READ, [p.flat[0].sge(0, length)], (key, offset))
            p.same(p.flat[0], p.gathered(1, layout, offset, length))
            await p.do(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, length)], (key, offset))
            p.same(p.mrs[1], p.scattered(1, layout, offset, p.octets[0][:length]))
        for offset, length in ((total, 1), (total - 1, 2), ((1 << 64) - 1, 2), (1 << 47, 1)):
            for opcode in (WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE):
                await p.refused(ACCESS, opcode, [p.flat[0].sge(0, length)], (key, offset))
        await p.connect(options)
    await p.well()


@cocotb.test()
async def t_k3_columns(dut):
    """T-K3: the case of rdma-core's test: two columns of 8 bytes with gaps of 2, three rows, and a
    SEND of the first 16 bytes, again and again."""
    p = await MkeyPair.ready(dut)
    for side in (0, 1):
        await p.lay(side, K3)
    for offset, length in ((0, 16), (4, 16), (32, 16), (47, 1), (8, 40)):
        p.fill()
        await p.qps[1].post_recv(RecvWR(1, [p.mkeys[1].sge(offset, length)]))
        await p.do(WrOpcode.SEND, [p.mkeys[0].sge(offset, length)])
        await p.good(side=1)
        p.same(p.mrs[1], p.scattered(1, K3, offset, p.gathered(0, K3, offset, length)))
    await p.well()


@cocotb.test()
async def t_k4_too_long(dut):
    """T-K4: an SGE beyond the layout, as a source, as a sink and in a receive request."""
    p = await MkeyPair.ready(dut)
    short = Layout([Piece(0, 8), Piece(64, 8)])
    for side in (0, 1):
        await p.lay(side, short)
    source, remote = p.mkeys[0].sge(0, 100), (p.mrs[1].rkey, p.mrs[1].iova)
    await p.refused(PROTECTION, WrOpcode.SEND, [source])
    await p.refused(PROTECTION, WrOpcode.RDMA_WRITE, [source], remote)
    await p.refused(PROTECTION, WrOpcode.RDMA_READ, [source], remote)
    (wc,) = await p.refused(
        WcStatus.REM_OP_ERR,
        WrOpcode.SEND,
        [p.flat[0].sge(0, 100)],
        receive=[p.mkeys[1].sge(0, 100)],
    )
    assert wc.status == PROTECTION
    for side in (0, 1):
        p.same(p.mrs[side], p.octets[side])
    await p.connect(OPTIONS)
    await send_into(p, short, 4, 12)
    await p.well()


@cocotb.test()
@cocotb.parametrize(bad=["loss=5%", "duplicate=30%", "reorder=8"])
async def t_k12_bad_networks(dut, bad):
    """T-K12, T-K15: WRITEs, READs and SENDs through random layouts of both sides over a network
    that loses, doubles or reorders packets. Another queue pair of the second side gives its key
    other layouts meanwhile: each access has one of them or fails, and no byte is outside of both.
    What is answered again is gathered by the layout of then."""
    p = await MkeyPair.ready(dut, options=replace(OPTIONS, mtu=Mtu.MTU_256))
    for number, wire in enumerate(p.system.testbench.wires):
        wire.impair(Impairments.parse(f"{bad},seed={number + 5}"))
    rng = random.Random(bad)
    for _ in range(3):
        layouts = [drawn(rng) for _ in range(2)]
        for side in (0, 1):
            await p.lay(side, layouts[side])
        length = min(layout.total for layout in layouts)
        p.fill()
        await p.do(WrOpcode.RDMA_READ, [p.mkeys[0].sge(0, length)], (p.mkeys[1].rkey, 0))
        data = p.gathered(1, layouts[1], 0, length)
        p.same(p.mrs[0], p.scattered(0, layouts[0], 0, data))
        p.fill()
        await p.do(WrOpcode.RDMA_WRITE, [p.mkeys[0].sge(0, length)], (p.mkeys[1].rkey, 0))
        data = p.gathered(0, layouts[0], 0, length)
        p.same(p.mrs[1], p.scattered(1, layouts[1], 0, data))
    # Two layouts in turn, while the first side writes ones.
    one, other = Layout([Piece(0, 300), Piece(1000, 300)]), Layout([Piece(4000, 40, 0, 60)], 15)
    p.mrs[1].fill(0)
    p.flat[0].fill(1)
    worker, others = p.qps, await p.connect(replace(OPTIONS, mtu=Mtu.MTU_256))
    p.qps = worker
    for turn in range(12):
        await others[1].post_send(p.layout_wr(1, (one, other)[turn % 2]))
        wr = p.request(WrOpcode.RDMA_WRITE, [p.flat[0].sge(0, 600)], (p.mkeys[1].rkey, 0))
        await p.qps[0].post_send(wr)
        (wc,) = await p.done()
        await p.good(side=1)
        assert wc.status in (WcStatus.SUCCESS, ACCESS), wc
        if wc.status:
            await p.connect(replace(OPTIONS, mtu=Mtu.MTU_256))
    named = {*one.addresses(0, 600), *other.addresses(0, 600)}
    found = set(np.flatnonzero(p.mrs[1].read(SIZE)).tolist())
    assert found and found <= named, found - named
    await p.well()


def drawn(rng):
    """Any layout of pieces that do not meet."""
    pieces, at, repeat = [], 0, rng.choice((1, 1, 2, 7))
    for _ in range(rng.randint(1, 12)):
        count, skip = rng.choice((1, 8, 64, 100, 300)), rng.choice((0, 5)) if repeat > 1 else 0
        pieces.append(Piece(at, count, skip=skip))
        at += repeat * (count + skip) + rng.randrange(9)
    rng.shuffle(pieces)
    return Layout(pieces, repeat)
