"""Two cards with two guest functions: what an untrusted guest, work request or peer can do to its
own queue pair, and to nobody else. T-S4 is in tests/nic/bench_services.py."""

from __future__ import annotations

import random
from dataclasses import replace

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import QpState, QpType, WcStatus, WrOpcode
from hdl.wire.opcodes import Operation
from sim.bench.broken_rings import break_ring
from sim.bench.system import QpOptions, connect, together
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    SGE,
    AHAttr,
    FastMR,
    GlobalRoute,
    QPCap,
    SendWR,
)
from sim.wire import packets as pk
from tests.nic.bench_functions import up
from tests.nic.bench_functions_broken import ISOLATES, needs_reset
from tests.nic.card import FUNCTIONS
from tests.nic.pair import LENGTH, RIGHTS, WAIT_NS, Pair
from tests.slow import QUICK

QKEY = 0x1234
UD = QpOptions(type=QpType.UD, qkey=QKEY)
#: How a request with more SGEs than its queue allows ends.
BAD_COUNT = WcStatus.LOC_QP_OP_ERR
#: Time over which a rate is measured.
WINDOW_NS = 150_000


class Bystander:
    """A connection with WRITEs that never stop, each of which must end well."""

    def __init__(self, pair: Pair):
        self.pair, self.sent, self._running = pair, 0, True
        self._task = cocotb.start_soon(self._traffic())

    async def _traffic(self) -> None:
        here, there = self.pair.mrs
        requests = []
        for at in range(0, 16_000, 1_000):
            wr = SendWR(1, WrOpcode.RDMA_WRITE, [here.sge(at, 1_000)])
            wr.set_wr_rdma(there.rkey, there.iova + at)
            requests.append(wr)
        while self._running:
            await self.pair.qps[0].post_send(requests)
            for _ in requests:
                await self.pair.good()
                self.sent += 1

    async def rate(self) -> int:
        """Messages in a window."""
        before = self.sent
        await Timer(WINDOW_NS, "ns")
        return self.sent - before

    async def end(self) -> None:
        """Nothing has happened to it, or to its function."""
        self._running = False
        await self._task
        await self.pair.exchange(random.Random(1))
        for node, qp in zip(self.pair.nodes, self.pair.qps, strict=True):
            assert (await qp.query()).qp_state == QpState.RTS
            assert not await needs_reset(node)


class Guests:
    """The first function has the bystander and, on another QP, what is tried first; the second one
    is the stranger."""

    @classmethod
    async def up(cls, dut, options: DriverOptions | None = None) -> Guests:
        self = cls()
        self.system, functions = await up(dut, (options, options))
        self.own, self.stranger = [
            await Pair(nodes, seed).make() for seed, nodes in enumerate(functions)
        ]
        # More regions than the first function has: numbers that are nobody's there.
        self.extra = [await MR.create(pd, LENGTH, RIGHTS) for pd in self.stranger.pds * 3]
        self.bystander = Bystander(await Pair(functions[0], 9).make())
        return self

    async def keys(self, side: int) -> dict[str, int]:
        """Keys on a side that are none of the first function's domain."""
        pair, context = self.own, self.own.nodes[side].context
        beside = await MR.create(await context.alloc_pd(), LENGTH, RIGHTS)
        freed = await MR.create(pair.pds[side], LENGTH, RIGHTS)
        await freed.close()
        return {
            "another domain": beside.lkey,
            "another function": self.extra[4 + side].lkey,
            "freed": freed.lkey,
            "forged": pair.mrs[side].lkey ^ 1,
        }

    async def again(self, options: QpOptions | None = None) -> None:
        """New QPs of the one who tries."""
        pair = self.own
        await together(*(qp.close() for qp in pair.qps))
        pair.qps = list(await connect(pair.nodes, pair.pds, pair.cqs, options))

    async def status(self, side: int = 0) -> WcStatus:
        """How its next request ends."""
        (wc,) = await self.own.cqs[side].wait(1, timeout_ns=WAIT_NS)
        assert wc.qp_num == self.own.qps[side].qp_num
        return wc.status


@cocotb.test()
async def t_s1_local_keys(dut):
    """T-S1: a local key of another domain, of another function, of a region that has gone, and one
    with another tag: LOC_PROT_ERR, as a source and as a sink, and no byte leaves or lands."""
    g = await Guests.up(dut)
    pair = g.own
    for why, key in (await g.keys(0)).items():
        for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
            before = [mr.read(LENGTH) for mr in pair.mrs]
            wr = SendWR(1, opcode, [SGE(pair.mrs[0].iova, 500, key)])
            wr.set_wr_rdma(pair.mrs[1].rkey, pair.mrs[1].iova)
            await pair.qps[0].post_send(wr)
            assert await g.status() == WcStatus.LOC_PROT_ERR, (why, opcode)
            for mr, was in zip(pair.mrs, before, strict=True):
                assert np.array_equal(mr.read(LENGTH), was), (why, opcode)
            await g.again()
    await pair.exchange(random.Random(2))
    await g.bystander.end()


@cocotb.test()
async def t_s2_remote_keys(dut):
    """T-S2: the same from the wire: NAK 62h, and the memory is as it was."""
    g = await Guests.up(dut)
    pair = g.own
    owners = [*g.own.mrs, *g.stranger.mrs, *g.extra]
    for why, key in (await g.keys(1)).items():
        for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
            before = [mr.read(LENGTH) for mr in owners]
            await pair.post(opcode, 0, 500, rkey=key)
            assert await g.status() == WcStatus.REM_ACCESS_ERR, (why, opcode)
            for mr, was in zip(owners, before, strict=True):
                assert np.array_equal(mr.read(LENGTH), was), (why, opcode)
            await g.again()
    await pair.exchange(random.Random(2))
    await g.bystander.end()


def mangled(pair: Pair, **fields: int) -> bytes:
    """A WRITE of the pair as an element of its send queue, with other values in some fields."""
    wr = SendWR(1, WrOpcode.RDMA_WRITE, [pair.mrs[0].sge(0, 100)])
    wr.set_wr_rdma(pair.mrs[1].rkey, pair.mrs[1].iova)
    element = bytearray(wr.pack(None))
    sizes = {field.name: field.kind.size for field in abi.POST_SEND.fields}
    for name, value in fields.items():
        at = abi.POST_SEND.offset(name)
        element[at : at + sizes[name]] = value.to_bytes(sizes[name], "little")
    return bytes(element)


@cocotb.test(skip=QUICK)
async def t_s3_work_requests(dut):
    """T-S3: a count of SGEs of 2^32 - 1, an opcode of that, SGEs that pass the end of addresses,
    and a descriptor chain that is a loop: an error of that QP. The others are as fast, but for the
    one walk of the loop."""
    g = await Guests.up(dut, ISOLATES)
    pair = g.own
    mr = pair.mrs[0]
    wraps = SendWR(1, WrOpcode.RDMA_WRITE, [SGE((1 << 64) - 100, 200, mr.lkey)])
    wraps.set_wr_rdma(pair.mrs[1].rkey, pair.mrs[1].iova)
    beyond = SendWR(1, WrOpcode.RDMA_WRITE, [mr.sge(0, 200)])
    beyond.set_wr_rdma(pair.mrs[1].rkey, (1 << 64) - 100)
    bad = [
        (mangled(pair, num_sge=0xFFFFFFFF), BAD_COUNT),
        (mangled(pair, opcode=0xFFFFFFFF), WcStatus.LOC_QP_OP_ERR),
        (wraps.pack(None), WcStatus.LOC_PROT_ERR),
        (beyond.pack(None), WcStatus.REM_ACCESS_ERR),
    ]

    async def post_each(elements: list[tuple[bytes, WcStatus]]) -> None:
        for element, status in elements:
            await pair.qps[0].post_raw(pair.qps[0].sq, element)
            assert await g.status() == status
            await g.again()

    async def rate_beside(elements: list[tuple[bytes, WcStatus]]) -> int:
        task = cocotb.start_soon(post_each(elements))
        rate = await g.bystander.rate()
        await task
        return rate

    sound = await rate_beside([(mangled(pair), WcStatus.SUCCESS)] * len(bad))
    broken = await rate_beside(bad)
    qp = pair.qps[0]
    await qp.sq.post(mangled(pair))
    break_ring("loop", qp.sq.ring, pair.nodes[0].host.memory, random.Random(3))
    await qp.sq.kick()
    looped = await g.bystander.rate()
    assert (await qp.query()).qp_state == QpState.ERR
    dut._log.info("beside sound requests %d, bad ones %d, a loop %d", sound, broken, looped)
    # A loop is walked once, up to as many descriptors as the ring has.
    assert broken > 0.9 * sound and looped > 0.7 * sound, (broken, looped, sound)
    await g.bystander.end()


@cocotb.test()
async def t_s5_addresses(dut):
    """T-S5: an address vector with a domain that is another's, or with a GID that another function
    alone has: LOC_QP_OP_ERR."""
    g = await Guests.up(dut)
    pair = g.own
    await g.stranger.nodes[0].add_address(3, "10.7.7.7")
    other = await pair.nodes[0].context.alloc_pd()
    dgid, mac = pair.nodes[1].context.query_gid(1, 0), pair.nodes[1].mac
    for pd, index, status in (
        (other, 0, WcStatus.LOC_QP_OP_ERR),
        (pair.pds[0], 3, WcStatus.LOC_QP_OP_ERR),
        (pair.pds[0], 0, WcStatus.SUCCESS),
    ):
        await g.again(UD)
        route = GlobalRoute(dgid=dgid, sgid_index=index)
        wr = SendWR(1, WrOpcode.SEND, [pair.mrs[0].sge(0, 9)])
        wr.set_wr_ud(AH(pd, AHAttr(gr=route, roce_dmac=mac)), pair.qps[1].qp_num, QKEY)
        await pair.qps[0].post_send(wr)
        assert await g.status() == status, index
    await g.bystander.end()


@cocotb.test(skip=QUICK)
async def t_s6_registrations(dut):
    """T-S6: REG_MR of a region that another function has made: MW_BIND_ERR, and the key that the
    owner gives it is good afterwards."""
    g = await Guests.up(dut)
    pair = g.own
    mine = [await FastMR.create(pair.pds[0], 4)]
    theirs = [await FastMR.create(g.stranger.pds[0], 4) for _ in range(12)]
    taken = {fast.mrn for fast in mine} | {mr.lkey >> 8 for mr in pair.mrs}
    foreign = next(fast for fast in reversed(theirs) if fast.mrn not in taken)
    await foreign.map(5000)
    wr = foreign.reg_wr(RIGHTS, new_tag=False)
    await pair.qps[0].post_send(wr)
    assert await g.status() == WcStatus.MW_BIND_ERR
    owner = g.stranger
    await owner.qps[0].post_send(foreign.reg_wr(RIGHTS))
    await owner.good()
    await g.again()
    await pair.exchange(random.Random(2))
    await g.bystander.end()


@cocotb.test()
async def t_s7_packets(dut):
    """T-S7: packets of one who guesses: from an address that is not the peer's, for a QP of another
    function, or with an old PSN. Nothing lands, each is counted, and the QPs go on."""
    g = await Guests.up(dut)
    pair, stranger = g.own, g.stranger
    victim = await MR.create(stranger.pds[1], LENGTH, RIGHTS)
    # Only the stranger has QPs of these numbers.
    more = [await connect(stranger.nodes, stranger.pds, stranger.cqs) for _ in range(3)]
    here, there = pair.nodes[1], pair.nodes[0]
    wire = g.system.testbench.wires[1]
    mr = pair.mrs[1]

    def write(psn: int, qpn: int, src: bytes, target: MR, octets: bytes) -> bytes:
        return pk.build(
            Operation.WRITE_ONLY,
            payload=octets,
            dst_mac=here.mac,
            src_mac=there.mac,
            dst_gid=here.context.query_gid(1, 0),
            src_gid=src,
            dest_qp=qpn,
            pkey=0xFFFF,
            psn=psn,
            va=target.iova,
            rkey=target.rkey,
            dma_length=len(octets),
            ack_request=1,
        )

    peer = there.context.query_gid(1, 0)
    psn, qpn = QpOptions().psns[0], pair.qps[1].qp_num
    bad = {
        "address_mismatch": write(psn, qpn, pk.gid_bytes("10.9.9.9"), mr, bytes(64)),
        "unknown_qp": write(psn, more[-1][1].qp_num, peer, victim, bytes(64)),
        "duplicate_request": write(psn - 1000, qpn, peer, mr, bytes(64)),
    }
    assert more[-1][1].qp_num not in (qp.qp_num for qp in (*pair.qps, *g.bystander.pair.qps))
    before = [one.read(LENGTH) for one in (mr, victim)]
    for counter, frame in bad.items():
        counted = (await here.counters())[counter]
        wire.inject(frame)
        await Timer(5, "us")
        assert (await here.counters())[counter] == counted + 1, counter
        for one, was in zip((mr, victim), before, strict=True):
            assert np.array_equal(one.read(LENGTH), was), counter
    await pair.exchange(random.Random(2))
    await stranger.exchange(random.Random(2))
    await g.bystander.end()


@cocotb.test(skip=QUICK)
async def t_s8_floods(dut):
    """T-S8: a QP whose completions have no room, one whose peer is never ready, and one whose peer
    has gone, each with more requests than the outstanding table has places: others keep half their
    rate, and beside the first one four fifths of it."""
    g = await Guests.up(dut, ISOLATES)
    pair = g.own
    alone = await g.bystander.rate()
    cap = QPCap(max_send_wr=256, max_recv_wr=2, max_send_sge=2, max_recv_sge=2)
    impatient = QpOptions(cap=cap, timeout=1, min_rnr_timer=1)
    requests = FUNCTIONS.outstanding * 3 // 2

    async def beside(opcode, *, room=256, peers=True, options=impatient) -> int:
        """The bystander's rate beside a QP with requests, and a CQ with ``room``."""
        cqs = [await CQ.create(node.context, room) for node in pair.nodes]
        qps = await connect(pair.nodes, pair.pds, cqs, options)
        if not peers:
            await qps[1].close()
        wrs = [SendWR(n, opcode, [pair.mrs[0].sge(0, 64)]) for n in range(requests)]
        for wr in wrs:
            wr.set_remote(pair.mrs[1].rkey, pair.mrs[1].iova)
        await qps[0].post_send(wrs)
        rate = await g.bystander.rate()
        await together(*(qp.close() for qp in qps[: 1 + peers]))
        await together(*(cq.close() for cq in cqs))
        return rate

    write, never = WrOpcode.RDMA_WRITE, replace(impatient, timeout=0)
    rates = {
        "no room": await beside(write, room=2),
        "never ready": await beside(WrOpcode.SEND),
        "gone": await beside(write, peers=False),
        "gone for ever": await beside(write, peers=False, options=never),
    }
    dut._log.info("messages alone %d, beside %s", alone, rates)
    assert all(rate > alone / 2 for rate in rates.values()), (alone, rates)
    assert rates["no room"] > 0.8 * alone, (alone, rates)
    await g.bystander.end()
