"""Two whole cards with hosts, firmware and drivers: what a user of verbs sees."""

import os
import random

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import (
    Access,
    Mtu,
    QpAttrMask,
    QpState,
    QpType,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from hdl.abi.virtio_pci import Feature
from hdl.ports.jobs import QueueErrorCause
from sim.bench.broken_rings import KINDS as BROKEN
from sim.bench.broken_rings import break_ring
from sim.bench.system import QpOptions, System, connect, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.driver.virtqueue import RingPolicy
from sim.guest.verbs import CQ, MR, QP, SGE, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR
from sim.wire.packets import build, dissect
from sim.wire.pcap import read_pcap
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
INIT_ATTRIBUTES = QpAttrMask.PKEY_INDEX | QpAttrMask.PORT | QpAttrMask.ACCESS_FLAGS
WAIT_NS = 400_000
DATA = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)


class Pair:
    """Two connected nodes with a region, a CQ and a QP each; ``stride`` bytes for each message."""

    def __init__(self, system):
        self.system, self.nodes = system, system.nodes

    @classmethod
    async def up(cls, dut, *, length=1 << 17, options=None, qp=None, config=CONFIG, **bench):
        self = cls(await System.start(dut, config, options=options, **bench))
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        await self.objects(length, qp)
        return self

    async def again(self, options=None, qp=None):
        """Device reset on both sides, and everything made anew."""
        await together(*(node.context.close() for node in self.nodes))
        for node in self.nodes:
            node.stop_firmware()
            assert not node.host.faults, node.host.faults
        await together(*(node.start(options) for node in self.nodes))
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        await self.objects(1 << 17, qp)

    async def objects(self, length, qp):
        self.pds = await together(*(n.context.alloc_pd() for n in self.nodes))
        self.cqs = await together(*(CQ.create(n.context, 64) for n in self.nodes))
        self.mrs = await together(*(MR.create(pd, length, RIGHTS, offset=5) for pd in self.pds))
        self.qps = await connect(self.nodes, self.pds, self.cqs, qp)
        self.mrs[0].write(DATA[:length])

    def request(self, opcode, sges, *, offset=0, number=1, imm=0, flags=SendFlags.SIGNALED):
        wr = SendWR(number, opcode, sges, flags, imm_data=imm)
        if opcode not in (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM):
            wr.set_wr_rdma(self.mrs[1].rkey, self.mrs[1].iova + offset)
        return wr

    async def done(self, side=0, count=1):
        return await self.cqs[side].wait(count, timeout_ns=WAIT_NS)

    async def good(self, side=0, count=1):
        found = await self.done(side, count)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        return found


def pieces(rng, mr, total, count):
    """``count`` SGEs of together ``total`` bytes, anywhere in the region, some empty; and their
    data.
    """
    cuts = sorted(rng.randint(0, total) for _ in range(count - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
    sges, at = [], 0
    for size in sizes:
        at += rng.randrange(0, 9)
        sges.append(mr.sge(at, size))
        at += size
    return sges


def gathered(mr, sges):
    parts = [mr.read(s.length, s.addr - mr.iova) for s in sges if s.length]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


@cocotb.test()
async def every_operation_at_the_edges(dut):
    """Lengths around the beat, the packet and the page; SGE counts; odd offsets; immediates."""
    mtu = Mtu.MTU_1024
    p = await Pair.up(dut, qp=QpOptions(mtu=mtu))
    p.system.stop_firmware()
    rng, beat = random.Random(3), CONFIG.width // 8
    lengths = [0, 1, beat - 1, beat, beat + 1, 1023, 1024, 1025, 3 * 1024 - 1, 3 * 1024, 10_001]
    receives = 0
    for number, length in enumerate(lengths):
        for opcode in (
            WrOpcode.SEND,
            WrOpcode.SEND_WITH_IMM,
            WrOpcode.RDMA_WRITE,
            WrOpcode.RDMA_WRITE_WITH_IMM,
            WrOpcode.RDMA_READ,
        ):
            sges = pieces(rng, p.mrs[0], length, rng.choice((1, 2, 5)))
            offset = rng.randrange(1, 200)
            imm = rng.getrandbits(32)
            p.mrs[1].write(DATA[4096 : 4096 + 20_000])
            before = p.mrs[1].read(p.mrs[1].length)
            takes = opcode not in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ)
            if takes:
                sink = pieces(rng, p.mrs[1], length + 3, 3)
                await p.qps[1].post_recv(RecvWR(77 + receives, sink))
                receives += 1
            if opcode == WrOpcode.RDMA_READ:
                untouched = p.mrs[1].read(length, offset)
            else:
                sent = gathered(p.mrs[0], sges)
            await p.qps[0].post_send(p.request(opcode, sges, offset=offset, number=number, imm=imm))
            (wc,) = await p.good()
            assert wc.wr_id == number
            if opcode == WrOpcode.RDMA_READ:
                assert np.array_equal(gathered(p.mrs[0], sges), untouched)
                assert wc.opcode == WcOpcode.RDMA_READ
                p.mrs[0].write(DATA[: p.mrs[0].length])
                continue
            if takes:
                (got,) = await p.good(side=1)
                assert got.byte_len == length and got.qp_num == p.qps[1].qp_num
                assert got.src_qp == p.qps[0].qp_num
                with_imm = opcode != WrOpcode.SEND
                assert bool(got.wc_flags & WcFlags.WITH_IMM) == with_imm
                if with_imm:
                    assert got.imm_data == imm
            if opcode in (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM):
                assert np.array_equal(gathered(p.mrs[1], sink)[:length], sent), (opcode, length)
            else:
                after = p.mrs[1].read(p.mrs[1].length)
                assert np.array_equal(after[offset : offset + length], sent), (opcode, length)
                after[offset : offset + length] = before[offset : offset + length]
                assert np.array_equal(after, before), "bytes beside the message changed"


@cocotb.test()
async def inline_and_unsignalled(dut):
    """Inline payloads of every kind of length; unsignalled WQEs give their ring entries back."""
    p = await Pair.up(dut)
    for length in (0, 1, 15, 16, 17, 100, 256):
        wr = p.request(WrOpcode.RDMA_WRITE, [], flags=SendFlags.SIGNALED | SendFlags.INLINE)
        wr.inline_data = DATA[7 : 7 + length].tobytes()
        await p.qps[0].post_send(wr)
        await p.good()
        assert p.mrs[1].read(length).tobytes() == wr.inline_data
    for _ in range(3):
        batch = [
            p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(i, 1)], offset=i, flags=SendFlags(0))
            for i in range(50)
        ]
        batch.append(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(50, 1)], offset=50, number=9))
        await p.qps[0].post_send(batch)
        (wc,) = await p.good()
        assert wc.wr_id == 9
        assert np.array_equal(p.mrs[1].read(51), p.mrs[0].read(51))
    assert await p.cqs[0].poll(10) == []


@cocotb.test()
async def every_mtu_and_both_ip_versions(dut):
    """A message of several packets at each path MTU, over IPv6."""
    p = await Pair.up(dut)
    for side, node in enumerate(p.nodes):
        await node.context.add_gid(0, f"fd00::{side + 1}")
        node.address = f"fd00::{side + 1}"
    for mtu in Mtu:
        qps = await connect(p.nodes, p.pds, p.cqs, QpOptions(mtu=mtu, psns=(0xFFFFFE, 0xFFFFFF)))
        size = 3 * mtu.octets + 5
        await qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(1, size)], offset=3))
        await p.good()
        assert np.array_equal(p.mrs[1].read(size, 3), p.mrs[0].read(size, 1))
        p.mrs[0].fill(0)
        await qps[0].post_send(p.request(WrOpcode.RDMA_READ, [p.mrs[0].sge(2, size)], offset=3))
        await p.good()
        assert np.array_equal(p.mrs[1].read(size, 3), p.mrs[0].read(size, 2))
        p.mrs[0].write(DATA[: p.mrs[0].length])


async def broken(p, wr, status, qps=None):
    """``wr`` ends with ``status``; what is posted behind it is flushed; another QP goes on."""
    qps = qps or p.qps
    good = await connect(p.nodes, p.pds, p.cqs)
    await qps[0].post_send([wr, p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)], number=2)])
    found = await p.done(count=2)
    assert [(wc.wr_id, wc.status) for wc in found] == [(1, status), (2, WcStatus.WR_FLUSH_ERR)]
    await good[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 700)], number=3))
    (wc,) = await p.good()
    assert wc.wr_id == 3
    assert np.array_equal(p.mrs[1].read(700), p.mrs[0].read(700))


@cocotb.test()
async def remote_errors(dut):
    """Bad key, range, right: the peer's NAK becomes the WQE's status, memory stays untouched."""
    p = await Pair.up(dut)
    readable = await MR.create(p.pds[1], 4096, Access.LOCAL_WRITE | Access.REMOTE_READ)
    before = p.mrs[1].read(p.mrs[1].length)
    cases = [
        (WrOpcode.RDMA_WRITE, p.mrs[1].rkey ^ 1, p.mrs[1].iova),
        (WrOpcode.RDMA_WRITE, p.mrs[1].rkey, p.mrs[1].iova + p.mrs[1].length - 99),
        (WrOpcode.RDMA_WRITE, p.mrs[1].rkey, p.mrs[1].iova - 1),
        (WrOpcode.RDMA_WRITE, readable.rkey, readable.iova),
        (WrOpcode.RDMA_READ, p.mrs[1].rkey, p.mrs[1].iova + p.mrs[1].length - 99),
    ]
    for opcode, rkey, address in cases:
        qps = await connect(p.nodes, p.pds, p.cqs)
        wr = SendWR(1, opcode, [p.mrs[0].sge(0, 100)])
        wr.set_wr_rdma(rkey, address)
        p.mrs[1].write(before)
        await qps[0].post_send([wr, p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 9)], number=2)])
        found = await p.done(count=2)
        statuses = [(wc.wr_id, wc.status) for wc in found]
        assert statuses == [(1, WcStatus.REM_ACCESS_ERR), (2, WcStatus.WR_FLUSH_ERR)], (
            opcode,
            rkey,
        )
        assert np.array_equal(p.mrs[1].read(p.mrs[1].length), before)
    counters = await p.nodes[1].counters()
    assert counters["resp_remote_access_errors"] == len(cases)


@cocotb.test()
async def counters_of_each_qp(dut):
    """Each QP counts its own events, from its creation on; together they are the port's."""
    p = await Pair.up(dut)
    many = [(p.qps[0], p.qps[1])] + [await connect(p.nodes, p.pds, p.cqs) for _ in range(3)]
    before = [await node.counters() for node in p.nodes]
    rng = random.Random(21)
    wanted = [[{}, {}] for _ in many]

    def expect(number, side, **events):
        counters = wanted[number][side]
        for name, count in events.items():
            counters[name] = counters.get(name, 0) + count

    for _ in range(20):
        number = rng.randrange(len(many))
        opcode = rng.choice((WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND))
        if opcode == WrOpcode.SEND:
            await many[number][1].post_recv(RecvWR(0, [p.mrs[1].sge(0, 4096)]))
            expect(number, 1, rx_send_requests=1)
        elif opcode == WrOpcode.RDMA_WRITE:
            expect(number, 1, rx_write_requests=1)
        else:
            expect(number, 1, rx_read_requests=1)
        await many[number][0].post_send(p.request(opcode, [p.mrs[0].sge(0, 1500)]))
        await p.good()
        if opcode == WrOpcode.SEND:
            await p.good(1)
    bad = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 100)])
    bad.set_wr_rdma(p.mrs[1].rkey ^ 1, p.mrs[1].iova)
    flushed = [p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 9)]) for _ in range(2)]
    await many[2][1].post_recv(RecvWR(0, [p.mrs[1].sge(0, 4096)]))
    await many[2][0].post_send([bad, *flushed])
    assert len(await p.done(count=3)) == 3
    assert len(await p.done(1, count=1)) == 1
    expect(2, 0, req_remote_access_errors=1, req_cqe_error=3, req_cqe_flush_error=2)
    expect(2, 1, resp_remote_access_errors=1, resp_cqe_error=1, resp_cqe_flush_error=1)

    for side, node in enumerate(p.nodes):
        after, total = await node.counters(), {}
        for number, qps in enumerate(many):
            qp = qps[side]
            found = await node.context.device.qp_counters(qp.qp_num)
            counted = {name: value for name, value in found.items() if value}
            # Of the flushed SENDs some may have been on the way already.
            assert counted.pop("qp_state", 0) <= (2 if (number, side) == (2, 1) else 0)
            assert counted == wanted[number][side], (number, side)
            assert found == await node.registers.qp_counters(qp.qp_num % CONFIG.qps)
            total = {name: total.get(name, 0) + value for name, value in found.items()}
        assert total == {name: after[name] - before[side][name] for name in total}
        assert set((await qp.hw_counters()).values()) == set(found.values())
    # Another driver finds nothing of it: not in QPs it has not made, not in those it makes.
    numbers = [qps[0].qp_num for qps in many]
    await p.again()
    device = p.nodes[0].context.device
    for number in numbers:
        assert not any((await device.qp_counters(number)).values())


@cocotb.test()
async def local_errors(dut):
    """A bad lkey, range, opcode or sink: the WQE fails, the rest is flushed, others go on."""
    p = await Pair.up(dut)
    mr = p.mrs[0]
    read_only = await MR.create(p.pds[0], 4096, Access(0))
    other_pd = await p.nodes[0].context.alloc_pd()
    foreign = await MR.create(other_pd, 4096, RIGHTS)
    ok = mr.sge(0, 2000)
    for opcode, sges, status in (
        (WrOpcode.RDMA_WRITE, [ok, SGE(mr.iova, 10, mr.lkey ^ 3)], WcStatus.LOC_PROT_ERR),
        (WrOpcode.RDMA_WRITE, [SGE(mr.iova + mr.length - 9, 10, mr.lkey)], WcStatus.LOC_PROT_ERR),
        (WrOpcode.SEND, [SGE(2**64 - 4, 8, mr.lkey)], WcStatus.LOC_PROT_ERR),
        (WrOpcode.RDMA_WRITE, [foreign.sge(0, 8)], WcStatus.LOC_PROT_ERR),
        (WrOpcode.RDMA_READ, [read_only.sge(0, 8)], WcStatus.LOC_PROT_ERR),
        (WrOpcode.ATOMIC_FETCH_AND_ADD, [ok], WcStatus.LOC_LEN_ERR),
        (99, [ok], WcStatus.LOC_QP_OP_ERR),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs)
        await broken(p, p.request(opcode, sges), status, qps)
        # Behind one that is on its way, and with nothing more to come.
        qps = await connect(p.nodes, p.pds, p.cqs)
        good = p.request(WrOpcode.RDMA_WRITE, [ok], number=5)
        await qps[0].post_send([good, p.request(opcode, sges, number=6)])
        found = await p.done(count=2)
        assert [(wc.wr_id, wc.status) for wc in found] == [(5, WcStatus.SUCCESS), (6, status)]


@cocotb.test()
async def receive_errors(dut):
    """A receive that is too small, or whose key is bad, fails both sides; its queue is flushed."""
    p = await Pair.up(dut)
    bad = SGE(p.mrs[1].iova, 64, p.mrs[1].lkey ^ 1)
    for sges, status in (
        ([p.mrs[1].sge(0, 10)], WcStatus.LOC_LEN_ERR),
        ([bad], WcStatus.LOC_PROT_ERR),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs)
        await qps[1].post_recv([RecvWR(5, sges), RecvWR(6, [p.mrs[1].sge(0, 64)])])
        await qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 50)]))
        (wc,) = await p.done()
        assert wc.status in (WcStatus.REM_OP_ERR, WcStatus.REM_INV_REQ_ERR)
        found = await p.done(side=1, count=2)
        assert [(w.wr_id, w.status) for w in found] == [(5, status), (6, WcStatus.WR_FLUSH_ERR)]


@cocotb.test()
async def modify_to_error_flushes(dut):
    """MODIFY_QP to ERR returns every request with a flush error."""
    p = await Pair.up(dut)
    await p.qps[1].post_recv([RecvWR(i, [p.mrs[1].sge(0, 8)]) for i in range(5)])
    await p.qps[1].modify(QPAttr(qp_state=QpState.ERR), 1)
    found = await p.done(side=1, count=5)
    assert [w.wr_id for w in found] == list(range(5))
    assert {w.status for w in found} == {WcStatus.WR_FLUSH_ERR}
    await p.qps[1].post_recv(RecvWR(9, []))
    (wc,) = await p.done(side=1)
    assert (wc.wr_id, wc.status) == (9, WcStatus.WR_FLUSH_ERR)


@cocotb.test()
async def reads_behind_an_error(dut):
    """Every READ behind an error comes back once and in order, many more than may be on the way."""
    p = await Pair.up(dut)
    ok, count = [p.mrs[0].sge(0, 100)], 30
    bad_key = [SGE(p.mrs[0].iova, 100, p.mrs[0].lkey ^ 3)]

    def reads(first):
        return [p.request(WrOpcode.RDMA_READ, ok, number=first + n) for n in range(count)]

    async def flushed(first):
        found = await p.done(count=count)
        assert [wc.wr_id for wc in found] == list(range(first, first + count))
        assert {wc.status for wc in found} == {WcStatus.WR_FLUSH_ERR}

    for opcode, sges, wrong, status in (
        (WrOpcode.RDMA_READ, ok, 1, WcStatus.REM_ACCESS_ERR),
        (WrOpcode.RDMA_WRITE, ok, 1, WcStatus.REM_ACCESS_ERR),
        (WrOpcode.RDMA_READ, bad_key, 0, WcStatus.LOC_PROT_ERR),
    ):
        qps = await connect(p.nodes, p.pds, p.cqs)
        bad = SendWR(1, opcode, sges)
        bad.set_wr_rdma(p.mrs[1].rkey ^ wrong, p.mrs[1].iova)
        await qps[0].post_send([bad, *reads(2)])
        (wc,) = await p.done()
        assert (wc.wr_id, wc.status) == (1, status)
        await flushed(2)
        for wr in reads(100):  # one by one, to the QP in error
            await qps[0].post_send(wr)
            (wc,) = await p.done()
            assert (wc.wr_id, wc.status) == (wr.wr_id, WcStatus.WR_FLUSH_ERR)
    await p.qps[0].post_send(reads(1))
    await p.qps[0].modify(QPAttr(qp_state=QpState.ERR), 1)
    found = await p.done(count=count)
    assert [wc.wr_id for wc in found] == list(range(1, 1 + count))
    statuses = [wc.status for wc in found]
    ended = statuses.count(WcStatus.SUCCESS)  # before the QP was told
    assert statuses == [WcStatus.SUCCESS] * ended + [WcStatus.WR_FLUSH_ERR] * (count - ended)


@cocotb.test()
async def queue_pairs_come_and_go(dut):
    """RESET and DESTROY_QP reset the virtqueues; whoever gets them next begins with nothing."""
    p = await Pair.up(dut)
    for turn in range(3):
        await p.qps[1].post_recv([RecvWR(turn, [p.mrs[1].sge(0, 64)]), RecvWR(99, [])])
        await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)]))
        await p.good()
        assert [wc.wr_id for wc in await p.good(side=1)] == [turn]
        for qp in p.qps:
            if turn == 0:
                await qp.modify(QPAttr(qp_state=QpState.RESET), 1)
            await qp.close()
        p.qps = await connect(p.nodes, p.pds, p.cqs)


@cocotb.test()
async def everything_comes_and_goes(dut):
    """Ten lives of each object at a time, which end in any order, then a connection that ends with
    work outstanding: nothing is left in firmware and driver, and the last message goes like the
    first. ``ROCINANTE_TURNS``: how often."""
    p = await Pair.up(dut)
    for obj in (*p.qps, *p.mrs, *p.cqs, *p.pds):
        await obj.close()
    for node in p.nodes:
        node.firmware_poll_ns = 20
    rng, context = random.Random(5), p.nodes[0].context
    free = [node.context.memory.free_bytes for node in p.nodes]

    async def born():
        pd, cq = await context.alloc_pd(), await CQ.create(context, 8)
        mr = await MR.create(pd, 4096)
        qp = await QP.create(pd, QPInitAttr(QpType.RC, cq, cq, QPCap(4, 4, 1, 1)))
        attr = QPAttr(qp_state=QpState.INIT, port_num=1)
        await qp.modify(attr, QpAttrMask.STATE | INIT_ATTRIBUTES)
        return pd, cq, mr, qp

    async def gone(life):
        for obj in reversed(life):
            await obj.close()

    for turn in range(int(os.environ.get("ROCINANTE_TURNS", "1"))):
        lives = [await task for task in [cocotb.start_soon(born()) for _ in range(10)]]
        for numbers in zip(*((pd.pdn, cq.cqn, mr.mrn) for pd, cq, mr, _ in lives), strict=True):
            assert sorted(numbers) == list(range(10)), "no number is lost, none is there twice"
        rng.shuffle(lives)
        for task in [cocotb.start_soon(gone(life)) for life in lives]:
            await task
        await p.objects(8192, None)
        await p.qps[1].post_recv([RecvWR(turn, [p.mrs[1].sge(0, 1000)]) for _ in range(2)])
        await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 1000)], number=turn))
        (wc,), (got,) = await p.good(), await p.good(side=1)
        assert (wc.wr_id, got.wr_id, got.byte_len) == (turn, turn, 1000)
        assert np.array_equal(p.mrs[1].read(1000), DATA[:1000])
        # Nobody waits for these.
        write = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 4096)])
        await p.qps[0].post_send([write, p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 64)])])
        for obj in (*p.qps, *p.mrs, *p.cqs, *p.pds):
            await obj.close()
        assert [node.context.memory.free_bytes for node in p.nodes] == free
        for node in p.nodes:
            objects = node.function.commands.objects
            assert not any(map(len, (objects.pds, objects.cqs, objects.mrs, objects.qps)))
            assert not node.host.faults


@cocotb.test()
async def partitions(dut):
    """A QP talks to members of its partition, of whom one must be a full one; a change of the
    table reaches a QP that is up."""
    p = await Pair.up(dut)

    async def dropped():
        return (await p.nodes[1].counters())["bad_pkey"]

    options = QpOptions(pkey_index=1, timeout=1, retry_cnt=1)
    for number, (pkeys, talk) in enumerate(
        (
            ((0x8001, 0x0001), True),
            ((0x8001, 0x8001), True),
            ((0x0001, 0x0001), False),
            ((0x8001, 0x8002), False),
        )
    ):
        for node in p.nodes:
            node.function.set_pkey(1, 0x8009)
        qps = await connect(p.nodes, p.pds, p.cqs, options)
        for node, pkey in zip(p.nodes, pkeys, strict=True):
            node.function.set_pkey(1, pkey)
            assert await node.context.query_pkey(index=1) == pkey
        before = await dropped()
        write = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 100)], number=number)
        await qps[0].post_send(write)
        (wc,) = await p.done()
        status = WcStatus.SUCCESS if talk else WcStatus.RETRY_EXC_ERR
        assert (wc.wr_id, wc.status) == (number, status)
        assert await dropped() - before == (0 if talk else 2)  # once more
    counters = await p.nodes[1].counters()
    violations = (await p.nodes[1].context.query_port()).bad_pkey_cntr
    assert violations == counters["bad_pkey"] + counters["rx_drops_pkey"] >= 4


@cocotb.test()
async def dropped_requests_stay_dropped(dut):
    """Without RING_RESET the rings go on where they are: what was fetched before must be gone."""
    p = await Pair.up(dut)
    features = ALL_FEATURES & ~Feature.RING_RESET.mask
    for again, ahead in (("destroy", 5), ("reset", 5), ("destroy", 1), ("reset", 1)):
        await p.again(DriverOptions(features=features))
        data = DATA[50_000:50_200]
        p.mrs[0].write(data)
        # Receives that nobody uses, sends that find no receive: all are fetched ahead.
        for number in range(ahead):
            await p.qps[1].post_recv(RecvWR(100 + number, [p.mrs[1].sge(4096 * number, 4096)]))
        sends = [p.request(WrOpcode.SEND, [p.mrs[1].sge(0, 64)], number=50 + n) for n in range(5)]
        await p.qps[1].post_send(sends)
        await Timer(10, "us")
        before = p.mrs[1].read(20_480)
        if again == "destroy":
            for qp in p.qps:
                await qp.close()
            p.qps = await connect(p.nodes, p.pds, p.cqs)
        else:
            attributes = [await qp.query() for qp in p.qps]
            for qp in p.qps:
                await qp.modify(QPAttr(qp_state=QpState.RESET), 1)
            for qp, attr in zip(p.qps, attributes, strict=True):
                attr.sq_psn = attr.rq_psn = 7
                await qp.to_rts(attr)
        assert not await p.cqs[0].poll(10) and not await p.cqs[1].poll(10)
        # What is posted now is served, both ways, and nothing else.
        for number in range(3):
            await p.qps[1].post_recv(RecvWR(200 + number, [p.mrs[1].sge(30_000, 200)]))
            send = p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 200)], number=7 + number)
            await p.qps[0].post_send(send)
            (wc,), (got,) = await p.good(), await p.good(side=1)
            assert (wc.wr_id, got.wr_id, got.byte_len) == (7 + number, 200 + number, 200), again
            assert np.array_equal(p.mrs[1].read(200, 30_000), data)
            await p.qps[0].post_recv(RecvWR(300 + number, [p.mrs[0].sge(1000, 64)]))
            send = p.request(WrOpcode.SEND, [p.mrs[1].sge(30_000, 64)], number=20 + number)
            await p.qps[1].post_send(send)
            (wc,), (got,) = await p.good(side=1), await p.good()
            assert (wc.wr_id, got.wr_id) == (20 + number, 300 + number), again
        assert np.array_equal(p.mrs[1].read(20_480), before), "a dropped receive was written"


@cocotb.test()
async def reset_stops_a_message(dut):
    """Once MODIFY_QP to RESET has returned, nothing of the QP goes out; the others go on."""
    p = await Pair.up(dut, length=1 << 20)
    others = await connect(p.nodes, p.pds, p.cqs)
    rng, wire = random.Random(9), p.system.testbench.wires[0]
    long, short = [p.mrs[0].sge(0, 1 << 20)], [p.mrs[0].sge(0, 100)]
    for _ in range(4):
        await p.qps[0].post_send([p.request(WrOpcode.RDMA_WRITE, long, number=n) for n in range(2)])
        begun = wire.stats.tx_frames
        for _ in range(100):
            await Timer(rng.randrange(1, 1000), "ns")
            if wire.stats.tx_frames > begun + 5:
                break
        else:
            raise AssertionError("the message must be on its way")
        await p.qps[0].modify(QPAttr(qp_state=QpState.RESET), 1)
        sent = wire.stats.tx_frames
        await Timer(20, "us")
        assert wire.stats.tx_frames == sent, "a QP in RESET sends"
        await others[0].post_send(p.request(WrOpcode.RDMA_WRITE, short))
        await p.good()
        await p.qps[1].modify(QPAttr(qp_state=QpState.RESET), 1)
        for qp in p.qps:
            await qp.close()
        p.qps = await connect(p.nodes, p.pds, p.cqs)


@cocotb.test()
async def completion_events(dut):
    """An armed CQ interrupts once; solicited arming waits for a solicited message."""
    p = await Pair.up(dut)
    host = p.nodes[1].host
    await p.qps[1].post_recv([RecvWR(i, [p.mrs[1].sge(0, 64)]) for i in range(8)])
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)]))
    await p.good(side=1)
    assert not [i for i in host.interrupts.spurious]
    await p.cqs[1].req_notify()
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)]))
    await p.cqs[1].get_event(timeout_ns=WAIT_NS)
    assert len(await p.cqs[1].poll(4)) == 1
    await p.cqs[1].req_notify(solicited_only=True)
    # Of this CQ's vector: the control queue's own message may still be on its way.
    messages, vector = p.nodes[1].context.device.interrupts, p.cqs[1].queue.vector
    received = messages[vector]
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)]))
    await p.good(side=1)
    assert messages[vector] == received, "an unsolicited message interrupted"
    flags = SendFlags.SIGNALED | SendFlags.SOLICITED
    await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)], flags=flags))
    await p.cqs[1].get_event(timeout_ns=WAIT_NS)


@cocotb.test()
async def ring_shapes(dut):
    """Chains, indirect tables, any cut of the buffers, all sets of features; rings that wrap."""
    plain = Feature.VERSION_1.mask
    shapes = [
        (ALL_FEATURES, RingPolicy(indirect=True)),
        (ALL_FEATURES & ~Feature.EVENT_IDX.mask, RingPolicy(split=(1, 70, 9))),
        (ALL_FEATURES & ~Feature.NOTIFICATION_DATA.mask, RingPolicy(split=(1, 3, 5, 20, 40))),
        (plain | Feature.INDIRECT_DESC.mask, RingPolicy(indirect=True, split=(33, 41))),
        (plain, RingPolicy()),
    ]
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=4, max_recv_sge=4)
    p = await Pair.up(dut)
    for features, policy in shapes:
        await p.again(DriverOptions(features=features, policy=policy), QpOptions(cap=cap))
        for turn in range(12):
            dut._log.info("features %x, %r, turn %d", features, policy, turn)
            size = 100 * turn + 1
            await p.qps[1].post_recv(RecvWR(turn, pieces(random.Random(turn), p.mrs[1], size, 3)))
            sges = pieces(random.Random(turn), p.mrs[0], size, 4)
            await p.qps[0].post_send(p.request(WrOpcode.SEND, sges, number=turn))
            (wc,) = await p.good()
            (got,) = await p.good(side=1)
            assert wc.wr_id == got.wr_id == turn and got.byte_len == size


@cocotb.test()
async def reset_at_any_moment(dut):
    """A device reset in the middle of traffic brings back a card that works like new."""
    rng = random.Random(7)
    p = await Pair.up(dut)
    for _ in range(4):
        size = 60_000
        await p.qps[0].post_send(
            [
                p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, size)]),
                p.request(WrOpcode.RDMA_READ, [p.mrs[0].sge(0, size)]),
            ]
        )
        await p.system.testbench.cycles(rng.randrange(50, 3000))
        await p.again()
        await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(3, 5000)], offset=1))
        await p.good()
        assert np.array_equal(p.mrs[1].read(5000, 1), p.mrs[0].read(5000, 3))


@cocotb.test()
async def restart_at_every_packet(dut):
    """A NAK makes the requester go back to any packet of a 32-SGE message: the same bytes again."""
    p = await Pair.up(dut, connect=False, qp=QpOptions(mtu=Mtu.MTU_1024))
    wire, count = p.system.testbench.wires[0], 9
    sges = pieces(random.Random(4), p.mrs[0], count * 1024 - 77, 32)
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, sges, offset=3))
    first = [(await wire.receive(WAIT_NS))[0] for _ in range(count)]
    sent = b"".join(dissect(frame).payload for frame in first)
    assert sent == gathered(p.mrs[0], sges).tobytes()
    request = dissect(first[0])
    psn = request.fields["psn"]
    way = {"src_gid": request.path["dst_gid"], "src_mac": request.path["dst_mac"]}
    way |= {"dst_gid": request.fields["src_gid"], "dst_mac": first[0][6:12]}
    for at in range(count):
        nak = build(
            0x11, **way, psn=psn + at, dest_qp=p.qps[0].qp_num, pkey=0xFFFF, syndrome=0x60, msn=0
        )
        wire.inject(nak)
        again = [(await wire.receive(WAIT_NS))[0] for _ in range(count - at)]
        assert again == first[at:], f"from packet {at}"


@cocotb.test()
async def broken_rings(dut):
    """Garbage in a ring: DEVICE_NEEDS_RESET, or the WQE ends in error; the other QP goes on."""
    rng = random.Random(6)
    p = await Pair.up(dut)
    for name in BROKEN:
        other = await connect(p.nodes, p.pds, p.cqs)
        ring, memory = p.qps[0].sq.ring, p.nodes[0].host.memory
        await p.qps[0].sq.post(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 9)]).pack(None))
        ring.publish()
        break_ring(name, ring, memory, rng)
        await p.nodes[0].context.device.notify(ring)
        failed = []
        for _ in range(300):
            await p.system.testbench.cycles(200)
            state, failed = await p.nodes[0].registers.needs_reset(), await p.cqs[0].poll(1)
            if state["active"] or failed:
                break
        if failed:  # the ring is sound, what it holds is no WQE
            assert failed[0].status in (WcStatus.LOC_LEN_ERR, WcStatus.LOC_QP_OP_ERR), name
            dut._log.info("%s: WQE ends with %s", name, failed[0].status.name)
        else:
            assert state["active"] and state["queue"] == ring.index, (name, state)
            dut._log.info("%s: %s", name, QueueErrorCause(state["cause"]).name)
        await other[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(1, 3000)], number=8))
        for _ in range(100):  # not ``wait``: the driver would see that the device wants a reset
            await p.system.testbench.cycles(100)
            if found := await p.cqs[0].poll(1):
                break
        assert [(wc.wr_id, wc.status) for wc in found] == [(8, WcStatus.SUCCESS)], name
        p.nodes[0].host.faults.clear()
        await p.again()
        await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(1, 99)], number=9))
        await p.good()


@cocotb.test()
async def cq_overflow(dut):
    """A CQ without buffers stops the QP and counts; nothing hangs, the other CQ's QP goes on."""
    p = await Pair.up(dut)
    small = await CQ.create(p.nodes[0].context, 4)
    qps = await connect(p.nodes, p.pds, (small, p.cqs[1]))
    requests = [p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(i, 10)], number=i) for i in range(12)]
    await qps[0].post_send(requests)
    await p.system.testbench.cycles(10_000)
    assert (await p.nodes[0].counters())["cq_overflows"] > 0
    pair = qps[0].qp_num % CONFIG.qps
    assert (await p.nodes[0].registers.read_row("qp_rx", pair))["error"]
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 700)], number=3))
    await p.good()


@cocotb.test()
async def full_rate(dut):
    """WRITE of 1 MiB at MTU 4096: at least 90 % of the wire limit (512 bit only; narrower: as
    wide).
    """
    p = await Pair.up(dut, length=(1 << 20) + 64)
    p.system.stop_firmware()
    for node in p.nodes:
        node.host.set(read_latency_ns=500)
    wire = p.system.testbench.wires[0]
    path = os.environ.get("ROCINANTE_PCAP", "rate.pcap")
    wire.capture(path)
    p.mrs[0].write(DATA)
    size = 1 << 20
    await p.qps[0].post_send(
        [p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, size)]) for _ in range(2)]
    )
    for _ in range(2):
        await p.cqs[0].wait(1, timeout_ns=2_000_000)
    wire.end_capture()
    assert np.array_equal(p.mrs[1].read(size), p.mrs[0].read(size))
    frames = [(t, len(f), len(d.payload)) for t, f in read_pcap(path) if (d := dissect(f)).payload]
    took = frames[-1][0] - frames[0][0]
    payload = sum(size for _, _, size in frames[:-1])
    limit = 100 * payload / sum(length + 24 for _, length, _ in frames[:-1])
    core = 0.98 * CONFIG.width * CONFIG.clock_hz / 1e9
    ratio = 8 * payload / took / min(limit, core)
    dut._log.info("goodput %.2f Gb/s, %.1f %% of the limit", 8 * payload / took, 100 * ratio)
    assert ratio >= 0.9
