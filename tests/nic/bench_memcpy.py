"""MEMCPY on a whole card: bytes, protection, order, errors in the middle, and who waits."""

import errno
import random
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import Timer

from hdl.abi.enums import (
    Access,
    QpAttrMask,
    QpState,
    QpType,
    RdmaFeature,
    SendFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from sim.bench.coverage import COVERAGE, bins
from sim.bench.system import QpOptions, System
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import CQ, MR, SGE, DmaMR, QPAttr, QPCap, RdmaError, SendWR
from sim.models.impairments import Impairments
from tests.nic.bench_placement import LENGTH, PLAIN, QUIET, RIGHTS, Pair
from tests.nic.card import ALL
from tests.slow import QUICK

OPTIONS = QpOptions(access=PLAIN, timeout=3, max_rd_atomic=16)
#: Bytes of a region, and of what must stay as it is on both sides of a copy.
SIZE, BORDER = 1 << 16, 64
SIGNALED, FENCE = SendFlags.SIGNALED, SendFlags.FENCE
PROTECTION, LENGTH_ERROR = WcStatus.LOC_PROT_ERR, WcStatus.LOC_LEN_ERR
OPERATION = WcStatus.LOC_QP_OP_ERR


def octets(seed, length=SIZE):
    return np.frombuffer(random.Random(seed).randbytes(length), np.uint8)


def copy(to: SGE, source: SGE, number=0, flags=SIGNALED):
    wr = SendWR(number, WrOpcode.MEMCPY, send_flags=flags)
    wr.set_wr_memcpy(to, source)
    return wr


class Card(Pair):
    """A pair of which the first card copies, from ``source`` to ``target``."""

    @classmethod
    async def ready(cls, dut, *, options=OPTIONS, size=SIZE, levels=None, **bench):
        self = await cls.up(dut, options=options, config=ALL, access=PLAIN, **bench)
        await self.regions(size, levels)
        return self

    async def regions(self, size, levels=None):
        self.size = size
        self.source = await MR.create(self.pds[0], size, Access(0), offset=24, levels=levels)
        self.target = await MR.create(self.pds[0], size, PLAIN, offset=7, levels=levels)

    def fill(self, seed):
        self.source.write(octets(seed, self.size))
        self.target.write(octets(seed + 1, self.size))

    def expected(self, seed, pieces):
        """The bytes of the target behind the copies of ``length`` bytes, from and to."""
        found = octets(seed + 1, self.size).copy()
        data = octets(seed, self.size)
        for source, to, length in pieces:
            found[to : to + length] = data[source : source + length]
        return found

    def same(self, wanted):
        assert np.array_equal(self.target.read(self.size), wanted)

    def piece(self, source, to, length, number=0, flags=SIGNALED):
        return copy(self.target.sge(to, length), self.source.sge(source, length), number, flags)


@cocotb.test()
async def t_c1_bytes(dut):
    """T-C1: 1, 4095, 4096 bytes and more, from and to odd addresses: the bytes are equal and their
    neighbours as before. The completion tells its opcode and length."""
    p = await Card.ready(dut)
    rng = random.Random(1)
    lengths = [1, 2, 63, 64, 65, 4095, 4096, 4097, 8192, 40000, SIZE]
    for turn, length in enumerate(lengths):
        p.fill(turn)
        source, to = (rng.randrange(SIZE - length + 1) for _ in range(2))
        await p.qps[0].post_send(p.piece(source, to, length, turn))
        (wc,) = await p.good()
        assert (wc.wr_id, wc.opcode, wc.byte_len) == (turn, WcOpcode.MEMCPY, length)
        p.same(p.expected(turn, [(source, to, length)]))
    assert p.system.testbench.wires[0].take() is None, "nothing leaves the card"
    await p.well()


@cocotb.test()
async def t_c1_many(dut):
    """T-C1: copies behind each other on several queue pairs, of all lengths; each completion comes
    in the order of its queue, and all bytes are right."""
    p = await Card.ready(dut)
    rng, qps = random.Random(2), [(await p.connect(OPTIONS))[0] for _ in range(3)]
    share = SIZE // (len(qps) * 16)
    p.fill(0)
    pieces = []
    for n, qp in enumerate(qps):
        wrs = []
        for k in range(16):
            length = rng.choice((1, 64, rng.randrange(1, share - 8), share - 8))
            to = (n * 16 + k) * share + rng.randrange(share - length)
            pieces.append((rng.randrange(SIZE - length), to, length))
            wrs.append(p.piece(*pieces[-1], number=100 * n + k))
        await qp.post_send(wrs)
    found = [wc.wr_id for wc in await p.good(len(pieces))]
    for n in range(len(qps)):
        assert [one for one in found if one // 100 == n] == [100 * n + k for k in range(16)]
    p.same(p.expected(0, pieces))
    await p.well()


@cocotb.test()
async def t_c2_protection(dut):
    """T-C2: another protection domain's destination, or source; no local write; a range that runs
    past the end: LOC_PROT_ERR, and not a byte is copied, of however many pieces. What follows is
    flushed, and other queue pairs go on."""
    p = await Card.ready(dut)
    other = await p.nodes[0].context.alloc_pd()
    stranger = await MR.create(other, SIZE, PLAIN)
    readable = await MR.create(p.pds[0], SIZE, Access(0))
    good_to, good_from = p.target.sge(0, 20000), p.source.sge(0, 20000)
    past = SGE(p.source.iova + SIZE - 19999, 20000, p.source.lkey)
    past_to = SGE(p.target.iova + SIZE - 19999, 20000, p.target.lkey)
    cases = [
        (stranger.sge(0, 20000), good_from),
        (good_to, stranger.sge(0, 20000)),
        (readable.sge(0, 20000), good_from),
        (good_to, past),
        (past_to, good_from),
        (good_to, SGE(p.source.iova, 20000, p.source.lkey ^ 1)),
    ]
    healthy = (await p.connect())[0]
    for turn, (to, source) in enumerate(cases):
        p.fill(turn)
        for mr in (stranger, readable):
            mr.write(octets(99))
        await p.connect()
        await p.qps[0].post_send([copy(to, source, 1), p.piece(0, 0, 9, 2), p.piece(0, 0, 9, 3)])
        found = await p.done(3)
        statuses = [PROTECTION, WcStatus.WR_FLUSH_ERR, WcStatus.WR_FLUSH_ERR]
        assert [(wc.wr_id, wc.status) for wc in found] == [*enumerate(statuses, 1)], (turn, found)
        wanted = octets(turn + 1)
        p.same(
            p.expected(turn, [(0, 0, 9)])
            if np.array_equal(p.target.read(9), octets(turn)[:9])
            else wanted
        )
        for mr in (stranger, readable):
            assert np.array_equal(mr.read(SIZE), octets(99))
        await healthy.post_send(p.piece(100, 200, 300, turn))
        await p.good()
    await p.well()


@cocotb.test()
async def t_c3_lengths(dut):
    """T-C3: no bytes, more than there may be, unequal lengths, one SGE or three: LOC_LEN_ERR. With
    inline data, and on another type of queue pair: LOC_QP_OP_ERR. The longest length is only a
    matter of the regions."""
    p = await Card.ready(dut)
    most = p.nodes[0].context.query_device().max_memcpy_length
    assert most == 1 << 30
    p.fill(0)

    async def ends(wr, status, options=OPTIONS):
        await p.connect(options)
        await p.qps[0].sq.post_all(wr, lambda one: one.pack(None))
        (wc,) = await p.done()
        assert wc.status == status, (wr, wc)

    to, source = p.target.sge, p.source.sge
    for sges, status in (
        ([to(0, 0), source(0, 0)], LENGTH_ERROR),
        ([to(0, 9), source(0, 8)], LENGTH_ERROR),
        ([to(0, 8), source(0, 9)], LENGTH_ERROR),
        ([to(0, 9), source(0, 0)], LENGTH_ERROR),
        ([to(0, 8)], LENGTH_ERROR),
        ([], LENGTH_ERROR),
        ([to(0, 8), source(0, 8), source(0, 8)], LENGTH_ERROR),
        ([SGE(p.target.iova, n, p.target.lkey) for n in (most + 1, most + 1)], LENGTH_ERROR),
        ([SGE(p.target.iova, n, p.target.lkey) for n in (most, most)], PROTECTION),
        ([to(0, 8), source(0, 8)], WcStatus.SUCCESS),
    ):
        await ends(SendWR(1, WrOpcode.MEMCPY, sges), status)
    for data in (b"", bytes(16)):
        flags = SIGNALED | SendFlags.INLINE
        wr = SendWR(1, WrOpcode.MEMCPY, send_flags=flags, inline_data=data)
        await p.ends(wr, OPERATION, OPTIONS)
    for kind in (QpType.UC, QpType.UD):
        wr = SendWR(1, WrOpcode.MEMCPY, [to(0, 8), source(0, 8)])
        await p.ends(wr, OPERATION, QpOptions(type=kind, access=PLAIN))
    p.same(p.expected(0, [(0, 0, 8)]))
    # A queue pair whose WQEs have one SGE, and which may have no READs.
    few = replace(OPTIONS, cap=QPCap(8, 8, 1, 1, 0), max_rd_atomic=0)
    await p.ends(p.piece(5, 50, 5000), WcStatus.SUCCESS, few)
    p.same(p.expected(0, [(0, 0, 8), (5, 50, 5000)]))
    for length in (0, most + 1):
        wr = copy(SGE(1, length, 1), SGE(1, length, 1))
        with pytest.raises(RdmaError) as caught:
            await p.qps[0].post_send(wr)
        assert caught.value.errno == errno.EINVAL
    await p.well()


@cocotb.test()
async def t_c4_order(dut):
    """T-C4: what has been copied is sent on with FENCE, and copied on with FENCE; READs in front
    are waited for with FENCE. All completions come in the order of the queue, also if frames are
    lost meanwhile."""
    p = await Card.ready(dut)
    mine, theirs = p.mrs
    for turn, bad in enumerate(("loss=0", "loss=0", "loss=10%", "loss=10%", "loss=10%")):
        for number, wire in enumerate(p.system.testbench.wires):
            wire.impair(Impairments.parse(f"{bad},seed={2 * turn + number + 1}"))
        p.fill(turn)
        theirs.write(octets(50 + turn, LENGTH))
        await p.connect()
        length = 9000 + turn
        read = SendWR(0, WrOpcode.RDMA_READ, [p.source.sge(0, length)])
        wrs = [
            p.write(0, 6000, 0),  # of no concern, but it must be acknowledged
            p.piece(0, 17, length, 1, SIGNALED),
            copy(mine.sge(3, length), p.target.sge(17, length), 2, SIGNALED | FENCE),
            SendWR(3, WrOpcode.RDMA_WRITE, [mine.sge(3, length)], SIGNALED | FENCE),
            p.read(9500, 4000, 4),
            copy(p.target.sge(20000, 4000), mine.sge(9500, 4000), 5, SIGNALED | FENCE),
            p.piece(100, 30000, 7000, 6, SIGNALED),
            p.write(2, 500, 7, flags=SIGNALED),
        ]
        wrs[3].set_wr_rdma(theirs.rkey, theirs.iova + 3)
        assert read.opcode == WrOpcode.RDMA_READ
        theirs_then = octets(50 + turn, LENGTH)
        await p.qps[0].post_send(wrs)
        found = await p.good(7)
        assert [wc.wr_id for wc in found] == [1, 2, 3, 4, 5, 6, 7]
        data = octets(turn)
        assert np.array_equal(theirs.read(length - 600, 603), data[600:length]), turn
        assert np.array_equal(p.target.read(4000, 20000), theirs_then[9500:13500]), turn
        assert np.array_equal(p.target.read(7000, 30000), data[100:7100]), turn
        assert np.array_equal(p.target.read(length, 17), data[:length]), turn
    await p.well()


@cocotb.test()
async def t_c5_regions(dut):
    """T-C5: page lists of two levels, and regions of all memory, as either side."""
    p = await Card.ready(dut, levels=2)
    p.fill(1)
    await p.qps[0].post_send(p.piece(4000, 12345, 30001))
    await p.good()
    p.same(p.expected(1, [(4000, 12345, 30001)]))
    dma = await DmaMR.create(p.pds[0])
    memory = p.nodes[0].host.memory
    buffer = memory.alloc(1 << 14, 4096)
    held = memory.bytes[buffer - memory.base :][: 1 << 14]
    held[:] = octets(7, 1 << 14)
    await p.qps[0].post_send(copy(p.target.sge(1, 9000), SGE(buffer + 5, 9000, dma.lkey)))
    await p.good()
    assert np.array_equal(p.target.read(9000, 1), octets(7, 1 << 14)[5:9005])
    await p.qps[0].post_send(copy(SGE(buffer + 33, 9000, dma.lkey), p.source.sge(2, 9000)))
    await p.good()
    assert np.array_equal(held[33:9033], octets(1)[2:9002])
    await p.well()


@cocotb.test()
async def beside_every_operation(dut):
    """A card copies while its peer sends it each operation, in any order, and it sends some back:
    all end well, and every byte is right."""
    options = replace(OPTIONS, access=RIGHTS)
    p = await Card.up(dut, options=options, config=ALL, access=RIGHTS)
    rng = random.Random(12)
    area, words, result = 8192, 8, LENGTH - 8
    held = p.randomize(1, 1).copy()
    p.randomize(0, 2)
    copies, sent = [], []
    for n in range(60):
        length, half = rng.randrange(1, 1500), LENGTH - area - 1500
        source, to = area + rng.randrange(half // 2), area + half // 2 + rng.randrange(half // 2)
        copies.append((source, to, min(length, half // 2, LENGTH - to)))
        add = SendWR(n, WrOpcode.ATOMIC_FETCH_AND_ADD, [p.mrs[0].sge(result, 8)], QUIET)
        add.set_wr_atomic(p.mrs[1].rkey, p.mrs[1].iova, 3)
        sent.append(
            rng.choice(
                (
                    p.store(words * rng.randrange(1, 9), n + 1, send_flags=QUIET),
                    p.flush(0, area, n, send_flags=QUIET),
                    p.write(100, rng.randrange(1, area - 100), n),
                    add,
                )
            )
        )
    sent[-1].send_flags = SIGNALED
    mine, one = p.mrs[1], p.qps[1]
    for n in range(0, 60, 6):
        await p.qps[0].post_send(sent[n : n + 6])
        await one.post_send(
            [
                copy(mine.sge(to, length), mine.sge(source, length), k, SIGNALED | FENCE)
                for k, (source, to, length) in enumerate(copies[n : n + 6])
            ]
        )
        await one.post_send(p.write(area, 3000, 50, side=1, flags=SIGNALED))
        await p.good(7, side=1)
    await p.good()
    for source, to, length in copies:
        held[to : to + length] = held[source : source + length].copy()
    assert np.array_equal(p.mrs[1].read(LENGTH - area, area), held[area:])
    assert p.word(0) == int.from_bytes(held[:8].tobytes(), "little") + 3 * sum(
        wr.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD for wr in sent
    )
    await p.well()


@cocotb.test()
async def source_that_cannot_be_read(dut):
    """The host does not answer for a part of the source: GENERAL_ERR, what lies behind that part is
    not written, and others go on."""
    p = await Card.ready(dut)
    p.fill(3)
    dma = await DmaMR.create(p.pds[0])
    other = (await p.connect())[0]
    await p.connect()
    await p.qps[0].post_send(copy(p.target.sge(0, 30000), SGE(1 << 45, 30000, dma.lkey)))
    (wc,) = await p.done()
    assert wc.status == WcStatus.GENERAL_ERR
    assert p.nodes[0].host.faults
    p.nodes[0].host.faults.clear()
    p.same(octets(4))
    await other.post_send(p.piece(1, 2, 3))
    await p.good()
    await p.well()


@cocotb.test()
async def no_timer_runs(dut):
    """C-3, and that no time-out comes: the host takes longer to read and to show its writes than a
    queue pair waits for its peer. When a copy completes, its bytes are there."""
    p = await Card.ready(dut)
    p.nodes[0].host.set(mmio_latency_ns=0, read_latency_ns=60_000)
    p.fill(5)
    await p.qps[0].post_send([p.piece(0, 0, SIZE, 1), p.write(0, 64, 2, flags=SIGNALED)])
    found = await p.good(2)
    assert [wc.wr_id for wc in found] == [1, 2]
    p.same(p.expected(5, [(0, 0, SIZE)]))
    counters = await p.nodes[0].context.device.qp_counters(p.qps[0].qp_num)
    assert not counters.get("local_ack_timeout_err"), counters
    await p.well()


@cocotb.test(skip=QUICK)
async def stopped_at_any_moment(dut):
    """C-4: ERR, RESET, the end of the queue pair and of its regions while a copy is under way. With
    the last completion, or the answer to the command, nothing is written any more."""
    p = await Card.ready(dut)
    rng = random.Random(8)
    for turn in range(24):
        p.fill(turn)
        way = ("error", "reset", "destroy", "deregister")[turn % 4]
        (qp, _) = await p.connect()
        wrs = [p.piece(0, 0, SIZE - 8, 1), p.piece(0, 0, 300, 2), p.piece(0, 0, SIZE, 3)]
        await qp.post_send(wrs)
        await Timer(rng.randrange(100, 30_000), "ns")
        if way == "error":
            await qp.modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
        elif way == "reset":
            await qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
        elif way == "destroy":
            await qp.close()
        else:
            await p.target.close()
        if way in ("error", "deregister"):
            found = await p.done(3)
            assert [wc.wr_id for wc in found] == [1, 2, 3]
            allowed = (WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR, PROTECTION)
            assert all(wc.status in allowed for wc in found), found
        if way == "deregister":
            p.target = await MR.create(p.pds[0], SIZE, PLAIN, offset=7)
        else:
            mark = octets(1000 + turn)
            p.target.write(mark)
            await Timer(20, "us")
            p.same(mark)
        await p.cqs[0].poll(16)
    await p.connect()
    p.fill(77)
    await p.qps[0].post_send(p.piece(1, 2, 40000))
    await p.good()
    p.same(p.expected(77, [(1, 2, 40000)]))
    await p.well()


@cocotb.test()
async def drained(dut):
    """C-4: a queue in SQD ends the copy that has begun, and begins no other until it goes on."""
    p = await Card.ready(dut)
    p.fill(9)
    await p.qps[0].post_send([p.piece(0, 0, SIZE, n) for n in range(8)])
    await p.qps[0].modify(QPAttr(qp_state=QpState.SQD), QpAttrMask.STATE)
    begun, quiet = [], 0
    while quiet < 100:
        await Timer(1, "us")
        found = await p.cqs[0].poll(8)
        begun += found
        quiet = 0 if found else quiet + 1
    assert 0 < len(begun) < 8 and not (await p.qps[0].query()).sq_draining
    mark = octets(10)
    p.target.write(mark)
    await Timer(20, "us")
    p.same(mark)
    await p.qps[0].modify(QPAttr(qp_state=QpState.RTS), QpAttrMask.STATE)
    found = begun + await p.good(8 - len(begun))
    assert [wc.wr_id for wc in found] == [*range(8)]
    p.same(p.expected(9, [(0, 0, SIZE)]))
    await p.well()


@cocotb.test()
async def under_traffic(dut):
    """Copies beside WRITEs, READs and SENDs in both directions of other queue pairs: every byte of
    all is right, and none waits for the end of the copies."""
    p = await Card.ready(dut)
    copier, (there, back) = p.qps[0], await p.connect()
    mine, theirs = p.mrs
    p.fill(11)
    pieces = [(n * 100, n * 8000, 7990) for n in range(8)]
    await copier.post_send([p.piece(*one, number=100 + n) for n, one in enumerate(pieces)])
    for turn in range(6):
        sent, came = p.randomize(0, 20 + turn), p.randomize(1, 40 + turn)
        await there.post_send(p.write(0, 5000, turn, flags=SIGNALED))
        wr = p.write(6000, 5000, turn, side=1, flags=SIGNALED)
        await back.post_send(wr)
        await there.post_send(p.read(12000, 4000, turn))
        left = 2
        while left:
            left -= sum(wc.wr_id < 100 for wc in await p.good(1))
        await p.good(1, 1)
        assert np.array_equal(theirs.read(5000), sent[:5000])
        assert np.array_equal(mine.read(5000, 6000), came[6000:11000])
        assert np.array_equal(mine.read(4000, 12000), came[12000:16000])
    await Timer(50, "us")
    await p.cqs[0].poll(64)
    p.same(p.expected(11, pieces))
    await p.well()


@cocotb.test()
async def not_negotiated(dut):
    """A driver that has not taken the feature: LOC_QP_OP_ERR, and nothing is copied."""
    old = DriverOptions(features=ALL_FEATURES & ~RdmaFeature.MEMCPY.mask)
    p = Card()
    p.system = await System.start(dut, ALL, options=old)
    p.nodes = p.system.nodes
    p.pds = [await node.context.alloc_pd() for node in p.nodes]
    p.cqs = [await CQ.create(node.context, 16) for node in p.nodes]
    await p.regions(SIZE)
    assert not p.nodes[0].context.device.features & RdmaFeature.MEMCPY.mask
    p.fill(1)
    await p.ends(p.piece(0, 0, 100), OPERATION, OPTIONS)
    p.same(octets(2))
    await p.well()


@cocotb.test(skip=QUICK)
async def t_c6_share(dut):
    """T-C6: WRITEs of 64 bytes alone, beside a long WRITE of another queue pair, and beside a copy
    that does not end: the copy takes no more from them than the WRITE does, and at 512 bits less
    than half."""
    size, count = 1 << 18, ALL.width // 32  # as much as takes 260 us
    p = await Card.ready(dut, size=size)
    p.fill(1)
    copier, (writer, _) = p.qps[0], await p.connect()

    def sort(found):
        """How many WRITEs have ended; others are kept in ``copies``."""
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        copies.extend(wc for wc in found if wc.wr_id != 7)
        return 8 * sum(wc.wr_id == 7 for wc in found)

    async def written(ns):
        """WRITEs that end in this time; as many as the queue holds are outstanding."""
        done = outstanding = 0
        until = p.nodes[0].host.now() + ns
        while p.nodes[0].host.now() < until:
            room = 56 - outstanding
            if room >= 8:
                last = p.write(0, 64, 7, flags=SIGNALED)
                await writer.post_send([*(p.write(0, 64) for _ in range(7)), last] * (room // 8))
                outstanding += room // 8 * 8
            await Timer(100, "ns")
            ended = sort(await p.cqs[0].poll(64))
            done, outstanding = done + ended, outstanding - ended
        while outstanding:
            outstanding -= sort(await p.good())
        return done

    copies, rates = [], []
    remote = await MR.create(p.pds[1], size, PLAIN)
    long = [SendWR(0, WrOpcode.RDMA_WRITE, [p.source.sge(0, size)]) for _ in range(count)]
    for wr in long:
        wr.set_wr_rdma(remote.rkey, remote.iova)
    for wrs in ([], long, [p.piece(0, 0, size)] * count):
        if wrs:
            await copier.post_send(wrs)
            await Timer(5, "us")
        rates.append(await written(30_000))
        assert len(copies) < count, "they end behind all of these"
        if wrs:
            await p.good(count - len(copies))
        copies.clear()
    alone, beside_write, beside_copy = rates
    assert beside_copy > 0.8 * beside_write, rates
    if ALL.width == 512:
        assert beside_copy > alone / 2, rates
    p.same(p.expected(1, [(0, 0, size)]))
    await p.well()


@cocotb.test()
async def every_class_of_copy(dut):
    """All bins of the functional coverage: sizes, alignment, page boundaries."""
    p = await Card.ready(dut)
    lengths = {"1-256": 100, "257-4096": 1000, "4097-65535": 4000, "65536-": 33000}
    wanted = [one for one in bins() if one[0] == "request" and one[2] == WrOpcode.MEMCPY.name]
    assert len(wanted) == 2 * 2 * len(lengths) - 2
    for turn, (_, _, _, size, alignment, _, pages) in enumerate(wanted):
        length, odd = lengths[size], alignment != "64 B"
        before = 64 if pages == "pages" else 4096 - odd * 5
        to, source = (-mr.iova % 4096 + 4096 - before + odd for mr in (p.target, p.source))
        p.fill(turn)
        await p.qps[0].post_send(p.piece(source, to, length, turn))
        await p.good()
        p.same(p.expected(turn, [(source, to, length)]))
    assert not [one for one in wanted if not COVERAGE.seen[one]]
    await p.well()
