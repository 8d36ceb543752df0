"""FLUSH and ATOMIC WRITE: what waits for what, both ways, windows, and answers that nobody may
send."""

import random

import cocotb
import numpy as np
from cocotb.triggers import Timer, with_timeout

from hdl.abi.enums import Access, FlushLevel, FlushType, MwType, SendFlags, WcStatus, WrOpcode
from hdl.wire.opcodes import Operation
from sim.bench.system import QpOptions
from sim.guest.verbs import MR, MW, DmaMR, SendWR
from sim.wire import packets as pk
from tests.nic.bench_placement import ACCESS, BOTH, LENGTH, PLAIN, RIGHTS, WAIT_NS, Pair, way

#: No time-out while Python stands in the place of the peer's card.
PATIENT = QpOptions(access=RIGHTS, psns=(0, 0), timeout=10, max_rd_atomic=16)
FENCED = SendFlags.SIGNALED | SendFlags.FENCE
#: Longer than a request takes from its doorbell to the line.
LEAVES_NS = 6_000


class Responder:
    """Python in the place of the responder's card; node 0 is the card that asks."""

    @classmethod
    async def up(cls, dut):
        self = cls()
        self.p = await Pair.up(dut, options=PATIENT, connect=False)
        self.wire = self.p.system.testbench.wires[0]
        return self

    async def asked(self, psn):
        """BTH opcode of the next frame, which has this PSN."""
        frame, _ = await self.wire.receive(WAIT_NS)
        fields = pk.dissect(frame).fields
        assert fields["psn"] == psn
        return fields["opcode"]

    async def quiet(self):
        """No frame leaves now."""
        await Timer(LEAVES_NS, "ns")
        assert self.wire.take() is None

    def answer(self, psn, octets=b""):
        fields = way(self.p, psn, side=0) | {"ack_request": 0}
        fields |= {"syndrome": 0x1F, "msn": psn + 1, "payload": octets}
        self.wire.inject(pk.build(Operation.READ_RESP_ONLY, **fields))


@cocotb.test()
async def p5_fence(dut):
    """P-5: FENCE on a FLUSH or an ATOMIC WRITE waits for the READs in front of it, and FENCE on
    what is behind waits for them; without FENCE nobody waits."""
    r = await Responder.up(dut)
    p = r.p
    await p.qps[0].post_send([p.read(0, 8), p.flush(0, 8), p.store(8, 1), p.write(16, 8)])
    asked = [await r.asked(psn) for psn in range(4)]
    wanted = (Operation.READ_REQUEST, Operation.FLUSH, Operation.ATOMIC_WRITE, Operation.WRITE_ONLY)
    assert asked == list(wanted)
    r.answer(0, bytes(8))
    r.answer(1)
    r.answer(2)
    await p.good(3)
    await p.qps[0].post_send(
        [
            p.read(0, 8, 10),
            p.flush(0, 8, 11, send_flags=FENCED),
            p.store(8, 1, 12, send_flags=FENCED),
            p.write(16, 8, 13, flags=FENCED),
        ]
    )
    for psn, opcode in enumerate(wanted, 4):
        assert await r.asked(psn) == opcode
        await r.quiet()
        if opcode != Operation.WRITE_ONLY:
            r.answer(psn, bytes(8) if opcode == Operation.READ_REQUEST else b"")
    assert [wc.wr_id for wc in await p.good(3)] == [10, 11, 12]


@cocotb.test()
async def p7_answer_with_payload(dut):
    """P-7: an answer that brings data nobody has asked for: BAD_RESP_ERR."""
    r = await Responder.up(dut)
    p = r.p
    for wr in (p.flush(0, 8, 1), p.store(0, 8, 1)):
        for octets in (bytes(4), bytes(8)):
            await p.connect(PATIENT)
            await p.qps[0].post_send(wr)
            await r.asked(0)
            r.answer(0, octets)
            (wc,) = await p.done()
            assert wc.status == WcStatus.BAD_RESP_ERR, (wr.opcode, octets)
    await p.well()


@cocotb.test()
async def p6_ack_completes_neither(dut):
    """P-6: an ACK beyond their PSN is no answer: they are sent again, and the answer ends them."""
    r = await Responder.up(dut)
    p = r.p
    for wr, opcode in ((p.flush(0, 8, 1), Operation.FLUSH), (p.store(0, 8, 1), 0x1D)):
        await p.connect(PATIENT)
        await p.qps[0].post_send([wr, p.write(16, 8)])
        assert [await r.asked(0), await r.asked(1)] == [opcode, Operation.WRITE_ONLY]
        fields = way(p, 1, side=0) | {"ack_request": 0}
        r.wire.inject(pk.build(Operation.ACKNOWLEDGE, **fields, syndrome=0x1F, msn=2))
        assert await r.asked(0) == opcode
        assert await p.cqs[0].poll(1) == []
        r.answer(0)
        await p.good(1)
        while r.wire.take() is not None:
            pass


@cocotb.test()
async def writes_do_not_wait_for_a_flush(dut):
    """A FLUSH takes a host read of 5 us here. Eight of them, each behind a WRITE and in front of
    the next one, take little more than one; what each one shows is there when it completes."""
    p = await Pair.up(dut)
    p.system.stop_firmware()
    host = p.nodes[1].host
    took = []
    for turns in (1, 8):
        octets = p.randomize(0, turns)
        host.set(mmio_latency_ns=0, read_latency_ns=5000, write_delay_ns=3000)
        begin = host.now()
        for n in range(turns):
            wrs = [p.write(1000 * n, 900), p.flush(1000 * n, 900, n)]
            await p.qps[0].post_send(wrs)
        for n in range(turns):
            (wc,) = await p.good()
            assert wc.wr_id == n
            at = 1000 * n
            assert np.array_equal(p.mrs[1].read(900, at), octets[at : at + 900]), n
        took.append(host.now() - begin)
    assert took[1] < took[0] + 2 * 5000, took
    # An ATOMIC WRITE in front of a FLUSH is shown, and a WRITE behind it comes behind it.
    for n in range(8):
        word = np.full(8, n + 1, np.uint8)
        p.mrs[0].write(word, 8)
        await p.qps[0].post_send([p.store(8, 7), p.write(8, 8), p.flush(0, 9)])
        await p.good(2)
        assert p.word(8) == int.from_bytes(word.tobytes(), "little")
    await p.well()


@cocotb.test()
async def t_p1_the_other_way(dut):
    """T-P1 with both nodes as requesters at once."""
    p = await Pair.up(dut)
    p.system.stop_firmware()
    for node in p.nodes:
        node.host.set(mmio_latency_ns=0, write_delay_ns=10_000)

    async def one(side):
        rng = random.Random(side)
        half = LENGTH // 2
        for turn in range(8):
            at, length = side * half + rng.randrange(1000), rng.randrange(1, 6000)
            octets = np.frombuffer(rng.randbytes(length), np.uint8)
            p.mrs[side].write(octets, at)
            flush = p.flush(at, length, turn, mr=p.mrs[1 - side], level=FlushLevel(turn % 2))
            await p.qps[side].post_send([p.write(at, length, side=side), flush])
            (wc,) = await p.good(side=side)
            assert wc.wr_id == turn
            assert np.array_equal(p.mrs[1 - side].read(length, at), octets), (side, turn)

    tasks = [cocotb.start_soon(one(side)) for side in (0, 1)]
    for task in tasks:
        await with_timeout(task, 1, "ms")
    await p.well()


@cocotb.test()
async def t_p2_region_of_the_bus(dut):
    """T-P2: of a region with the addresses of the bus a range can be flushed; the whole has no byte
    that may be read, and 0 bytes have none either: 62h. The card reads nothing but the range."""
    p = await Pair.up(dut)
    everything = await DmaMR.create(p.pds[1], RIGHTS)
    page = p.mrs[1].table.pages[0]
    for at, length, level, status in (
        (page + 9, 1000, FlushLevel.RANGE, WcStatus.SUCCESS),
        (page + 9, 1000, FlushLevel.MR, ACCESS),
        (page + 9, 0, FlushLevel.RANGE, ACCESS),
    ):
        wr = SendWR(1, WrOpcode.FLUSH)
        wr.set_wr_flush(everything.rkey, at, length, BOTH, level)
        await p.ends(wr, status)
    plain = await DmaMR.create(p.pds[1], PLAIN)
    wr = SendWR(1, WrOpcode.FLUSH)
    wr.set_wr_flush(plain.rkey, page, 8)
    await p.ends(wr, ACCESS)
    await p.well()


@cocotb.test()
async def windows(dut):
    """A window has the rights of FLUSH that it is bound with, which its region must have; its range
    is its own."""
    p = await Pair.up(dut)
    region = await MR.create(p.pds[1], 8192, RIGHTS | Access.MW_BIND, offset=24)
    visible = await MR.create(
        p.pds[1], 8192, PLAIN | Access.FLUSH_GLOBAL | Access.MW_BIND, offset=24
    )
    window = await MW.create(p.pds[1], MwType.TYPE_1)

    async def bound(mr, access):
        await p.connect()
        await p.qps[1].post_send(window.bind_wr(mr, 1000, 3000, access))
        return (await p.done(side=1))[0].status

    remote = Access.REMOTE_READ | Access.REMOTE_WRITE
    good = WcStatus.SUCCESS
    for mr, rights, kind, status in (
        (region, remote | Access.FLUSH_GLOBAL, FlushType.GLOBAL, good),
        (region, remote | Access.FLUSH_GLOBAL, BOTH, ACCESS),
        (region, Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT, BOTH, good),
        (region, remote, FlushType.GLOBAL, ACCESS),
        (visible, remote | Access.FLUSH_GLOBAL, FlushType.GLOBAL, good),
    ):
        assert await bound(mr, rights) == good
        for at, length, level in ((0, 3000, FlushLevel.RANGE), (1 << 40, 5, FlushLevel.MR)):
            wr = SendWR(1, WrOpcode.FLUSH)
            wr.set_wr_flush(window.key, window.iova + at, length, kind, level)
            await p.qps[0].post_send(wr)
            (wc,) = await p.done()
            assert wc.status == status, (rights, kind, level)
            if status != good:
                break
    assert await bound(region, remote | Access.FLUSH_GLOBAL) == good
    for at, length, status in ((0, 3001, ACCESS), (-1, 1, ACCESS), (2999, 1, good)):
        await p.connect()
        wr = SendWR(1, WrOpcode.FLUSH)
        wr.set_wr_flush(window.key, window.iova + at, length)
        await p.qps[0].post_send(wr)
        (wc,) = await p.done()
        assert wc.status == status, (at, length)
    assert await bound(visible, Access.FLUSH_PERSISTENT) == WcStatus.MW_BIND_ERR
    # An ATOMIC WRITE needs the window's right to WRITE.
    for rights, status in ((remote, good), (Access.REMOTE_READ, ACCESS)):
        assert await bound(region, rights) == good
        wr = SendWR(1, WrOpcode.ATOMIC_WRITE)
        wr.set_wr_atomic_write(window.key, window.iova, b"\5" * 8)
        await p.qps[0].post_send(wr)
        (wc,) = await p.done()
        assert wc.status == status
    await Timer(2, "us")
    assert region.read(8, 1000).tobytes() == b"\5" * 8
    await p.well()
