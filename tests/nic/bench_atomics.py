"""Atomics between two whole cards: both operations, many QPs on one word, order, loss, errors."""

import random

import cocotb
import numpy as np

from hdl.abi.enums import Access, AtomicCap, SendFlags, WcOpcode, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, SGE, SendWR
from sim.models.impairments import Impairments
from tests.nic.card import CONFIG
from tests.slow import QUICK

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
WAIT_NS, WORD = 400_000, 1 << 64
SWAP, ADD = WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD
COMPLETIONS = {SWAP: WcOpcode.COMP_SWAP, ADD: WcOpcode.FETCH_ADD}
#: 32.8 us: longer than anything takes here without loss.
OPTIONS = QpOptions(access=RIGHTS, timeout=3)
SLOTS = 512


class Pair:
    """Two nodes with a region of words, a region for results, a CQ and QPs that atomics reach."""

    def __init__(self, system):
        self.system, self.nodes = system, system.nodes

    @classmethod
    async def up(cls, dut, *, qps=1, options=OPTIONS):
        self = cls(await System.start(dut, CONFIG))
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        self.pds = [await node.context.alloc_pd() for node in self.nodes]
        self.cqs = [await CQ.create(node.context, 512) for node in self.nodes]
        self.words = [await MR.create(pd, 8 * SLOTS, RIGHTS, offset=16) for pd in self.pds]
        self.found = [
            await MR.create(pd, 8 * SLOTS, Access.LOCAL_WRITE, offset=5) for pd in self.pds
        ]
        self.qps = [await self.connect(options) for _ in range(qps)]
        return self

    async def connect(self, options=OPTIONS):
        return await connect(self.nodes, self.pds, self.cqs, options)

    def atomic(self, side, opcode, word, number, *operands, sges=None, flags=SendFlags.SIGNALED):
        """An atomic of ``side`` on a word of the other; its result goes to slot ``number``."""
        sges = sges or [self.found[side].sge(8 * number, 8)]
        wr = SendWR(number, opcode, sges, flags)
        theirs = self.words[1 - side]
        wr.set_wr_atomic(theirs.rkey, theirs.iova + 8 * word, *operands)
        return wr

    def read(self, mr, index):
        return int.from_bytes(mr.read(8, 8 * index).tobytes(), "little")

    def write(self, mr, index, value):
        mr.write(np.frombuffer(value.to_bytes(8, "little"), np.uint8), 8 * index)

    async def done(self, side=0, count=1):
        return await self.cqs[side].wait(count, timeout_ns=WAIT_NS)

    async def well(self):
        """Nothing is left over, and the hosts have seen nothing that they should not."""
        for cq, node in zip(self.cqs, self.nodes, strict=True):
            assert await cq.poll(1) == []
            assert not node.host.faults, node.host.faults


@cocotb.test()
async def both_operations_both_ways(dut):
    """Random atomics of both sides on a few words: results and words are the model's."""
    p = await Pair.up(dut, options=QpOptions(access=RIGHTS, psns=(0xFFFFF0, 0xFFFFF8)))
    assert p.nodes[0].context.query_device().atomic_cap == AtomicCap.HCA
    rng = random.Random(11)
    for side in (0, 1):
        words = [rng.getrandbits(64) for _ in range(3)]
        for word, value in enumerate(words):
            p.write(p.words[1 - side], word, value)
        expected, wrs = [], []
        for number in range(40):
            word, opcode = rng.randrange(3), rng.choice((SWAP, ADD))
            old, value = words[word], rng.choice((1, WORD - 1, rng.getrandbits(64)))
            if opcode == ADD:
                operands, words[word] = (value,), (old + value) % WORD
            else:
                compare = rng.choice((old, old, old ^ 1 << rng.randrange(64)))
                operands = compare, value
                words[word] = value if compare == old else old
            sges = None
            if number % 3 == 1:  # the result in pieces
                at = p.found[side].iova + 8 * number
                cut, key = rng.randrange(9), p.found[side].lkey
                sges = [SGE(at, cut, key), SGE(at + cut, 8 - cut, key)]
            wrs.append(p.atomic(side, opcode, word, number, *operands, sges=sges))
            expected.append((number, opcode, old))
        for first in range(0, len(wrs), 20):
            await p.qps[0][side].post_send(wrs[first : first + 20])
            for wc, (number, opcode, old) in zip(
                await p.done(side, 20), expected[first : first + 20], strict=True
            ):
                assert (wc.wr_id, wc.status) == (number, WcStatus.SUCCESS)
                assert (wc.opcode, wc.byte_len) == (COMPLETIONS[opcode], 8)
                assert p.read(p.found[side], number) == old, number
        assert [p.read(p.words[1 - side], word) for word in range(3)] == words
    await p.well()


@cocotb.test()
async def one_word_of_many_qps(dut):
    """Eight QPs count one word up, on a network that loses packets too: no number is given out
    twice, and none is left out."""
    p = await Pair.up(dut, qps=8)
    each = 24
    for turn, bad in enumerate(("loss=0", "loss=5%,duplicate=5%")):
        p.write(p.words[1], 7, start := WORD - 50)
        for n, wire in enumerate(p.system.testbench.wires):
            wire.impair(Impairments.parse(f"{bad},seed={9 + n}"))
        for n, qps in enumerate(p.qps):
            await qps[0].post_send([p.atomic(0, ADD, 7, each * n + k, 1) for k in range(each)])
        found = await p.done(count=8 * each)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), (turn, found)
        given = sorted((p.read(p.found[0], n) - start) % WORD for n in range(8 * each))
        assert given == list(range(8 * each)), turn
        assert p.read(p.words[1], 7) == (start + 8 * each) % WORD
    for wire in p.system.testbench.wires:
        wire.impair()
    await p.well()


@cocotb.test()
async def requests_of_one_qp_in_order(dut):
    """A WRITE in front of an atomic is what that finds, and one behind it is what stays; a READ
    finds what the atomic has left."""
    p = await Pair.up(dut)
    qp, theirs = p.qps[0][0], p.words[1]
    source = await MR.create(p.pds[0], 8 * SLOTS, RIGHTS, offset=3)
    for turn in range(20):
        wrs = []
        for part, value in ((0, 1000 + turn), (1, 2000 + turn)):
            p.write(source, 2 * turn + part, value)
            write = SendWR(
                0, WrOpcode.RDMA_WRITE, [source.sge(8 * (2 * turn + part), 8)], SendFlags(0)
            )
            write.set_wr_rdma(theirs.rkey, theirs.iova + 8 * 5)
            add = p.atomic(0, ADD, 5, 3 * turn + part, 7, flags=SendFlags(0))
            wrs += [write, add]
        read = SendWR(turn, WrOpcode.RDMA_READ, [p.found[0].sge(8 * (3 * turn + 2), 8)])
        read.send_flags |= SendFlags.FENCE
        read.set_wr_rdma(theirs.rkey, theirs.iova + 8 * 5)
        # Without a fence a WRITE may overtake the reading of a READ before it.
        last = SendWR(99, WrOpcode.RDMA_WRITE, [source.sge(16 * turn, 8)], SendFlags.FENCE)
        last.set_wr_rdma(theirs.rkey, theirs.iova + 8 * 5)
        await qp.post_send([*wrs, read, *([last] if turn % 2 else [])])
        (wc,) = await p.done()
        assert (wc.wr_id, wc.status) == (turn, WcStatus.SUCCESS)
        got = [p.read(p.found[0], 3 * turn + part) for part in range(3)]
        assert got == [1000 + turn, 2000 + turn, 2007 + turn], turn
    # The write of an atomic does not come behind a WRITE that followed it.
    for turn in range(20):
        p.write(source, 0, 5000 + turn)
        adds = [p.atomic(0, ADD, 6, n, 1, flags=SendFlags(0)) for n in range(3)]
        last = SendWR(turn, WrOpcode.RDMA_WRITE, [source.sge(0, 8)])
        last.set_wr_rdma(theirs.rkey, theirs.iova + 8 * 6)
        await qp.post_send([*adds, last])
        (wc,) = await p.done()
        assert wc.status == WcStatus.SUCCESS
        assert p.read(theirs, 6) == 5000 + turn
    await p.well()


@cocotb.test()
async def a_lost_answer_is_repeated(dut):
    """An atomic whose answer or request is lost is executed once: the saved result comes again."""
    p = await Pair.up(dut)
    p.write(p.words[1], 0, 100)
    before = await p.nodes[1].counters()
    number, value = 0, 100
    for role, wire in (
        ("atomic_ack:1", 1),
        ("atomic_ack:2-3", 1),
        ("atomic:1", 0),
        ("atomic:3", 0),
    ):
        p.system.testbench.wires[wire].impair(Impairments.parse(f"drop={role}"))
        swap = p.atomic(0, SWAP, 0, number + 3, value + 3, 500 + number)
        adds = [p.atomic(0, ADD, 0, number + n, 1) for n in range(3)]
        await p.qps[0][0].post_send([*adds, swap])
        found = await p.done(count=4)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), (role, found)
        assert [p.read(p.found[0], number + n) for n in range(4)] == [value + n for n in range(4)]
        value = 500 + number
        assert p.read(p.words[1], 0) == value
        number += 4
        p.system.testbench.wires[wire].impair()
    after = await p.nodes[1].counters()
    assert after["duplicate_request"] > before["duplicate_request"]
    assert after["duplicate_read_lost"] == before["duplicate_read_lost"]
    await p.well()


@cocotb.test(skip=QUICK)
async def atomics_that_are_refused(dut):
    """A bad key, range, right, alignment, length or sink: nothing changes, and others go on."""
    p = await Pair.up(dut)
    mine, theirs = p.found[0], p.words[1]
    plain = await MR.create(p.pds[1], 4096, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    read_only = await MR.create(p.pds[0], 4096, Access(0))
    p.write(theirs, 3, 77)
    inside, sink = theirs.iova + 24, [mine.sge(0, 8)]
    no_right = QpOptions(access=RIGHTS & ~Access.REMOTE_ATOMIC)
    access, invalid = WcStatus.REM_ACCESS_ERR, WcStatus.REM_INV_REQ_ERR
    length, protection = WcStatus.LOC_LEN_ERR, WcStatus.LOC_PROT_ERR
    for options, rkey, addr, sges, status in (
        (OPTIONS, theirs.rkey ^ 1, inside, sink, access),
        (OPTIONS, theirs.rkey, theirs.iova + theirs.length, sink, access),
        (OPTIONS, plain.rkey, plain.iova, sink, access),
        (OPTIONS, theirs.rkey, inside + 4, sink, invalid),
        (OPTIONS, theirs.rkey, inside + 1, sink, invalid),
        (no_right, theirs.rkey, inside, sink, invalid),
        (OPTIONS, theirs.rkey, inside, [mine.sge(0, 7)], length),
        (OPTIONS, theirs.rkey, inside, [mine.sge(0, 9)], length),
        (OPTIONS, theirs.rkey, inside, [mine.sge(0, 4), mine.sge(0, 5)], length),
        (OPTIONS, theirs.rkey, inside, [], length),
        (OPTIONS, theirs.rkey, inside, [SGE(mine.iova, 8, mine.lkey ^ 1)], protection),
        (OPTIONS, theirs.rkey, inside, [read_only.sge(0, 8)], protection),
        (OPTIONS, theirs.rkey, inside, [mine.sge(0, 4), SGE(mine.iova, 4, 0)], protection),
    ):
        for opcode, operands in ((ADD, (1,)), (SWAP, (77, 5))):
            qps = await p.connect(options)
            bad = SendWR(1, opcode, sges)
            bad.set_wr_atomic(rkey, addr, *operands)
            await qps[0].post_send([bad, p.atomic(0, ADD, 3, 2, 1)])
            found = await p.done(count=2)
            assert [(wc.wr_id, wc.status) for wc in found] == [
                (1, status),
                (2, WcStatus.WR_FLUSH_ERR),
            ], (opcode, status, hex(addr))
            assert p.read(theirs, 3) == 77
            await qps[0].close()
            await qps[1].close()
            # What was refused has left nothing behind.
            await p.qps[0][0].post_send([p.atomic(0, ADD, 4, n, 1) for n in range(3)])
            assert all(wc.status == WcStatus.SUCCESS for wc in await p.done(count=3))
    assert p.read(theirs, 4) == 3 * 13 * 2
    await p.well()
