"""FLUSH and ATOMIC WRITE between two whole cards: what is visible when, rights, loss, order."""

import json
import random
from pathlib import Path

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import (
    Access,
    DeviceCap,
    FlushLevel,
    FlushType,
    Mtu,
    RdmaFeature,
    SendFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from hdl.wire.headers import FETH, RETH
from hdl.wire.opcodes import Operation
from sim.bench.system import QpOptions, System, connect
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import CQ, MR, DmaMR, FastMR, RdmaError, SendWR
from sim.models.impairments import Impairments
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap
from tests.nic.card import ALL

FLUSHES = Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
PLAIN = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
RIGHTS = PLAIN | FLUSHES
BOTH = FlushType.GLOBAL | FlushType.PERSISTENT
WAIT_NS, LENGTH = 2_000_000, 1 << 14
#: 32.8 us: longer than anything takes here without loss.
OPTIONS = QpOptions(access=RIGHTS, timeout=3, max_rd_atomic=16)
COMPLETIONS = {
    WrOpcode.FLUSH: WcOpcode.FLUSH,
    WrOpcode.ATOMIC_WRITE: WcOpcode.ATOMIC_WRITE,
}
INVALID, ACCESS = WcStatus.REM_INV_REQ_ERR, WcStatus.REM_ACCESS_ERR
#: BTH opcodes, and a frame over IPv4 up to the BTH.
FLUSH, ATOMIC_WRITE, ONLY = Operation.FLUSH, Operation.ATOMIC_WRITE, Operation.READ_RESP_ONLY
BTH_AT = 42
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in json.loads(
        (Path(__file__).parents[1] / "data" / "placement.json").read_text()
    ).items()
}
QUIET = SendFlags(0)


class Pair:
    """Two nodes with a region and a CQ each, and a QP that reaches both operations."""

    @classmethod
    async def up(cls, dut, *, options=OPTIONS, config=ALL, access=RIGHTS, **bench):
        system = await System.start(dut, config, **bench)
        return await cls.on(system, system.nodes, options=options, access=access)

    @classmethod
    async def on(cls, system, nodes, *, options=OPTIONS, access=RIGHTS):
        """The same on two nodes of a system that is up."""
        self = cls()
        self.system, self.nodes = system, nodes
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        self.pds = [await node.context.alloc_pd() for node in self.nodes]
        self.cqs = [await CQ.create(node.context, 256) for node in self.nodes]
        self.mrs = [await MR.create(pd, LENGTH, access, offset=8) for pd in self.pds]
        self.qps = await self.connect(options)
        return self

    async def connect(self, options=OPTIONS):
        self.qps = await connect(self.nodes, self.pds, self.cqs, options)
        return self.qps

    def write(self, at, length, number=0, *, side=0, flags=QUIET):
        """A WRITE of ``length`` bytes at the same place of both regions."""
        wr = SendWR(number, WrOpcode.RDMA_WRITE, [self.mrs[side].sge(at, length)], flags)
        theirs = self.mrs[1 - side]
        wr.set_wr_rdma(theirs.rkey, theirs.iova + at)
        return wr

    def read(self, at, length, number=0, *, side=0):
        wr = self.write(at, length, number, side=side, flags=SendFlags.SIGNALED)
        wr.opcode = WrOpcode.RDMA_READ
        return wr

    def flush(self, at, length, number=0, *, mr=None, kind=BOTH, level=FlushLevel.RANGE, **more):
        wr = SendWR(number, WrOpcode.FLUSH, **more)
        mr = mr or self.mrs[1]
        wr.set_wr_flush(mr.rkey, mr.iova + at, length, kind, level)
        return wr

    def store(self, at, value, number=0, *, mr=None, **more):
        wr = SendWR(number, WrOpcode.ATOMIC_WRITE, **more)
        mr = mr or self.mrs[1]
        wr.set_wr_atomic_write(mr.rkey, mr.iova + at, value.to_bytes(8, "little"))
        return wr

    def word(self, at, side=1):
        return int.from_bytes(self.mrs[side].read(8, at).tobytes(), "little")

    async def done(self, count=1, side=0):
        return await self.cqs[side].wait(count, timeout_ns=WAIT_NS)

    async def good(self, count=1, side=0):
        found = await self.done(count, side)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        return found

    async def ends(self, wr, status, options=OPTIONS):
        """On a QP of its own ``wr`` ends with ``status``, or well if that is SUCCESS."""
        await self.connect(options)
        await self.qps[0].post_send(wr)
        (wc,) = await self.done()
        assert wc.status == status, (wr, wc)

    async def well(self):
        """Nothing is left over, and the hosts have seen nothing that they should not."""
        for cq, node in zip(self.cqs, self.nodes, strict=True):
            assert await cq.poll(1) == []
            assert not node.host.faults, node.host.faults

    def randomize(self, side, seed):
        octets = np.frombuffer(random.Random(seed).randbytes(LENGTH), np.uint8)
        self.mrs[side].write(octets)
        return octets


@cocotb.test()
async def t_p1_visible_when_it_is_answered(dut):
    """T-P1: WRITEs, then a FLUSH of a range or of the region, of each type, one way. The host
    shows writes late; when the FLUSH completes, they are seen. After a WRITE alone they are not."""
    p = await Pair.up(dut)
    caps = p.nodes[0].context.query_device().device_cap_flags
    wanted = DeviceCap.FLUSH_GLOBAL | DeviceCap.FLUSH_PERSISTENT | DeviceCap.ATOMIC_WRITE
    assert caps & wanted == wanted
    rng = random.Random(5)
    p.system.stop_firmware()  # its register reads push writes, too
    p.nodes[1].host.set(mmio_latency_ns=0, write_delay_ns=20_000)
    late = 0
    for turn in range(12):
        octets = p.randomize(0, turn)
        at, length = rng.randrange(2000), rng.randrange(1, 9000)
        kind = FlushType(1 + turn % 3)
        level = FlushLevel(turn % 2)
        named = (
            rng.randrange(1, LENGTH - at) if level == FlushLevel.RANGE else rng.randrange(1 << 31)
        )
        flush = p.flush(at, named, turn, kind=kind, level=level)
        await p.qps[0].post_send([p.write(at, length), flush])
        (wc,) = await p.good()
        assert (wc.wr_id, wc.opcode, wc.byte_len) == (turn, WcOpcode.FLUSH, named)
        assert np.array_equal(p.mrs[1].read(length, at), octets[at : at + length]), turn
        octets = p.randomize(0, 100 + turn)
        await p.qps[0].post_send(p.write(at, length, flags=SendFlags.SIGNALED))
        await p.good()
        late += not np.array_equal(p.mrs[1].read(length, at), octets[at : at + length])
        await Timer(60, "us")
    assert late > 6, "the host shows writes late, or this test shows nothing"
    await p.well()


@cocotb.test()
async def t_p1_behind_every_operation(dut):
    """T-P1: what a FLUSH shows are the WRITEs, atomics and ATOMIC WRITEs in front of it, also those
    of other queue pairs that have been acknowledged."""
    p = await Pair.up(dut)
    p.nodes[1].host.set(mmio_latency_ns=0, write_delay_ns=20_000)
    for turn in range(8):
        add = SendWR(0, WrOpcode.ATOMIC_FETCH_AND_ADD, [p.mrs[0].sge(0, 8)], SendFlags(0))
        add.set_wr_atomic(p.mrs[1].rkey, p.mrs[1].iova + 64, 3)
        await p.qps[0].post_send(
            [
                p.store(56, turn + 1000, send_flags=SendFlags(0)),
                add,
                p.store(72, turn + 2000, send_flags=SendFlags(0)),
                p.flush(0, 1, turn, kind=FlushType.GLOBAL),
            ]
        )
        (wc,) = await p.good()
        assert wc.wr_id == turn
        assert [p.word(at) for at in (56, 64, 72)] == [turn + 1000, 3 * turn + 3, turn + 2000]
    await p.well()


@cocotb.test()
async def t_p2_region_without_the_type(dut):
    """T-P2: a region or a fast region without the right that is asked for: 62h."""
    p = await Pair.up(dut)
    for access, kind, status in (
        (PLAIN, FlushType.GLOBAL, ACCESS),
        (PLAIN | Access.FLUSH_GLOBAL, FlushType.GLOBAL, WcStatus.SUCCESS),
        (PLAIN | Access.FLUSH_GLOBAL, FlushType.PERSISTENT, ACCESS),
        (PLAIN | Access.FLUSH_GLOBAL, BOTH, ACCESS),
        (Access.FLUSH_PERSISTENT, FlushType.PERSISTENT, WcStatus.SUCCESS),
        (RIGHTS, BOTH, WcStatus.SUCCESS),
    ):
        mr = await MR.create(p.pds[1], 5000, access, offset=1)
        for level in FlushLevel:
            await p.ends(p.flush(0, 5000, mr=mr, kind=kind, level=level), status)
        fast = await FastMR.create(p.pds[1], 2)
        await fast.map(5000)
        register = SendWR(9, WrOpcode.REG_MR)
        register.set_wr_reg(fast.mrn, fast.key, access)
        await p.connect()
        await p.qps[1].post_send(register)
        await p.good(side=1)
        wr = SendWR(1, WrOpcode.FLUSH)
        wr.set_wr_flush(fast.key, fast.iova, 5000, kind)
        await p.qps[0].post_send(wr)
        (wc,) = await p.done()
        assert wc.status == status
    await p.well()


@cocotb.test()
async def t_p3_queue_pair_without_it(dut):
    """T-P3: a queue pair that does not let its peer ask for the type, or for the operation: 61h."""
    p = await Pair.up(dut)
    for access, kind, status in (
        (PLAIN, FlushType.GLOBAL, INVALID),
        (PLAIN | Access.FLUSH_PERSISTENT, FlushType.GLOBAL, INVALID),
        (PLAIN | Access.FLUSH_GLOBAL, BOTH, INVALID),
        (PLAIN | Access.FLUSH_GLOBAL, FlushType.GLOBAL, WcStatus.SUCCESS),
        (FLUSHES, BOTH, WcStatus.SUCCESS),
    ):
        await p.ends(p.flush(0, 9, kind=kind), status, QpOptions(access=access))
    await p.ends(p.store(0, 1), INVALID, QpOptions(access=RIGHTS & ~Access.REMOTE_WRITE))
    read_only = await MR.create(p.pds[1], 64, Access.LOCAL_WRITE | Access.REMOTE_READ)
    await p.ends(p.store(0, 1, mr=read_only), ACCESS)
    await p.well()


@cocotb.test()
async def t_p4_keys_and_ranges(dut):
    """T-P4: the key is checked of no bytes too; a range that is a byte too long; of a whole region
    address and length mean nothing."""
    p = await Pair.up(dut)
    mr = p.mrs[1]
    for key, at, length, level, status in (
        (mr.rkey ^ 1, 0, 0, FlushLevel.RANGE, ACCESS),
        (mr.rkey ^ 1, 0, 9, FlushLevel.MR, ACCESS),
        (mr.rkey, 0, LENGTH + 1, FlushLevel.RANGE, ACCESS),
        (mr.rkey, -1, 1, FlushLevel.RANGE, ACCESS),
        (mr.rkey, LENGTH - 1, 2, FlushLevel.RANGE, ACCESS),
        (mr.rkey, LENGTH, 1, FlushLevel.RANGE, ACCESS),
        (mr.rkey, LENGTH - 1, 1, FlushLevel.RANGE, WcStatus.SUCCESS),
        (mr.rkey, 0, LENGTH, FlushLevel.RANGE, WcStatus.SUCCESS),
        (mr.rkey, 1 << 60, 0, FlushLevel.RANGE, WcStatus.SUCCESS),
        (mr.rkey, (1 << 63) + 5, 1 << 31, FlushLevel.MR, WcStatus.SUCCESS),
        (mr.rkey, -1, (1 << 31) - 3, FlushLevel.MR, WcStatus.SUCCESS),
    ):
        wr = SendWR(1, WrOpcode.FLUSH)
        wr.set_wr_flush(key, (mr.iova + at) % (1 << 64), length, BOTH, level)
        await p.ends(wr, status)
    based = await MR.create(p.pds[1], 9000, RIGHTS | Access.ZERO_BASED, offset=4090)
    wr = SendWR(1, WrOpcode.FLUSH)
    wr.set_wr_flush(based.rkey, 8999, 1)
    await p.ends(wr, WcStatus.SUCCESS)
    everything = await DmaMR.create(p.pds[1], RIGHTS)
    wr = SendWR(1, WrOpcode.FLUSH)
    wr.set_wr_flush(everything.rkey, mr.table.pages[0] + 9, 1000)
    await p.ends(wr, WcStatus.SUCCESS)
    await p.well()


@cocotb.test()
async def local_errors(dut):
    """What the requester refuses by itself: SGEs or inline data, types and levels that nobody has,
    a range that is too long, a right to no READs."""
    p = await Pair.up(dut)
    sge = [p.mrs[0].sge(0, 8)]
    length, operation = WcStatus.LOC_LEN_ERR, WcStatus.LOC_QP_OP_ERR
    inline = {"send_flags": SendFlags.SIGNALED | SendFlags.INLINE, "inline_data": bytes(8)}
    for wr, status in (
        (p.flush(0, 8, sg=sge), length),
        (p.store(0, 8, sg=sge), length),
        (p.flush(0, 8, **inline), length),
        (p.store(0, 8, **inline), length),
        (p.flush(0, 8, kind=0), operation),
        (p.flush(0, 8, kind=4), operation),
        (p.flush(0, 8, kind=0x81), operation),
        (p.flush(0, 8, level=2), operation),
        (p.flush(0, 8, level=0x80), operation),
        (p.flush(0, (1 << 31) + 1), operation),
        (p.flush(0, 1 << 31, level=FlushLevel.MR), WcStatus.SUCCESS),
    ):
        await p.ends(wr, status)
    for wr in (p.flush(0, 8), p.store(0, 8)):
        await p.ends(wr, operation, QpOptions(access=RIGHTS, max_rd_atomic=0))
    await p.well()


def way(p, psn, side=1):
    """Where a frame of a peer goes that speaks to node ``side``, from its partner."""
    here, there = p.nodes[side], p.nodes[1 - side]
    return {
        "src_gid": there.context.query_gid(1, 0),
        "src_mac": there.mac,
        "dst_gid": here.context.query_gid(1, 0),
        "dst_mac": here.mac,
        "psn": psn & 0xFFFFFF,
        "dest_qp": p.qps[side].qp_num,
        "pkey": 0xFFFF,
        "ack_request": 1,
    }


def flush_headers(mr, at, length, *, plt=1, sel=0):
    reth = RETH.pack(va=(mr.iova + at) % (1 << 64), rkey=mr.rkey, dma_length=length)
    return FETH.pack(plt=plt, sel=sel) + reth


class Peer:
    """Python in the place of the requester's card; node 1 is the card that it speaks to."""

    @classmethod
    async def up(cls, dut):
        self = cls()
        self.p = await Pair.up(dut, connect=False)
        self.wire = self.p.system.testbench.wires[1]
        return self

    async def fresh(self, depth=16, access=RIGHTS):
        """A new connection; the PSN of the next request is 0."""
        self.psn = 0
        options = QpOptions(
            access=access, psns=(0, 0), mtu=Mtu.MTU_1024, max_rd_atomic=depth, timeout=3
        )
        await self.p.connect(options)

    def send(self, opcode, body, psn=None, **fields):
        if psn is None:
            psn, self.psn = self.psn, self.psn + 1
        self.wire.inject(pk.build(opcode, payload=body, **way(self.p, psn), **fields))

    def store(self, at, octets, *, length=8, psn=None):
        mr = self.p.mrs[1]
        reth = RETH.pack(va=mr.iova + at, rkey=mr.rkey, dma_length=length)
        self.send(ATOMIC_WRITE, reth + octets, psn)

    async def answer(self):
        """Opcode, PSN, syndrome and payload of the next frame that the card sends."""
        frame, _ = await self.wire.receive(WAIT_NS)
        return self.said(frame)

    @staticmethod
    def said(frame):
        found = pk.dissect(frame)
        fields = found.fields
        return fields["opcode"], fields["psn"], fields["syndrome"], found.payload


@cocotb.test()
async def t_p5_atomic_write(dut):
    """T-P5: the word is what was sent, byte for byte, and none beside it changes; an address that
    is no multiple of 8, a length that is not 8, a payload that is not 8: 61h."""
    p = await Pair.up(dut)
    rng = random.Random(9)
    for turn in range(20):
        octets = p.randomize(1, turn).copy()
        at, value = 8 * rng.randrange(LENGTH // 8), rng.getrandbits(64)
        await p.qps[0].post_send(p.store(at, value, turn))
        (wc,) = await p.good()
        assert (wc.wr_id, wc.opcode, wc.byte_len) == (turn, WcOpcode.ATOMIC_WRITE, 8)
        octets[at : at + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
        await Timer(1, "us")
        assert np.array_equal(p.mrs[1].read(LENGTH), octets), turn
    for at in (1, 4, 7):
        await p.ends(p.store(at, 5), INVALID)
    # Its address is a multiple of 8, and the bus's is not: it would be two words.
    askew = await MR.create(p.pds[1], 64, RIGHTS, offset=4, virt_addr=0x10000000)
    await p.ends(p.store(0, 5, mr=askew), ACCESS)
    await p.ends(p.store(LENGTH, 5), ACCESS)
    await p.well()


@cocotb.test()
async def t_p5_injected(dut):
    """T-P5: what no card sends: a length of 4 with a payload of 4, payloads of 0 and 12, and of a
    FLUSH a type or a level that nobody has: 61h each, and nothing is written. A FLUSH with payload
    is dropped and counted, as a READ with payload is."""
    peer = await Peer.up(dut)
    mr = peer.p.mrs[1]
    before = mr.read(LENGTH)
    reth = RETH.pack(va=mr.iova + 8, rkey=mr.rkey, dma_length=8)
    short = RETH.pack(va=mr.iova + 8, rkey=mr.rkey, dma_length=4)
    for opcode, body in (
        (ATOMIC_WRITE, short + bytes(4)),
        (ATOMIC_WRITE, short + bytes(8)),
        (ATOMIC_WRITE, reth + bytes(4)),
        (ATOMIC_WRITE, reth),
        (ATOMIC_WRITE, reth + bytes(12)),
        (ATOMIC_WRITE, reth + bytes(1024)),
        (FLUSH, flush_headers(mr, 0, 9, plt=0)),
        (FLUSH, flush_headers(mr, 0, 9, plt=5)),
        (FLUSH, flush_headers(mr, 0, 9, sel=2)),
        (FLUSH, flush_headers(mr, 0, 9, sel=3)),
        (FLUSH, flush_headers(mr, 0, (1 << 31) + 1)),
    ):
        await peer.fresh()
        peer.send(opcode, body)
        assert await peer.answer() == (Operation.ACKNOWLEDGE, 0, 0x61, b""), (opcode, body)
    # In the middle of a WRITE.
    for opcode, body in ((ATOMIC_WRITE, reth + bytes(8)), (FLUSH, flush_headers(mr, 0, 9))):
        await peer.fresh()
        first = {"va": mr.iova + 4096, "rkey": mr.rkey, "dma_length": 2048}
        peer.send(Operation.WRITE_FIRST, before[4096:5120].tobytes(), **first)
        assert await peer.answer() == (Operation.ACKNOWLEDGE, 0, 0x1F, b"")
        peer.send(opcode, body)
        assert await peer.answer() == (Operation.ACKNOWLEDGE, 1, 0x61, b"")
    await peer.fresh()
    peer.send(FLUSH, flush_headers(mr, 0, 9) + bytes(4), psn=0)
    peer.send(FLUSH, flush_headers(mr, 0, 9))
    assert await peer.answer() == (ONLY, 0, 0x1F, b"")
    assert (await peer.p.nodes[1].counters())["rx_drops_length"] == 1
    assert np.array_equal(mr.read(LENGTH), before)


@cocotb.test()
async def t_p6_never_written_again(dut):
    """T-P6: a duplicate is answered and does nothing, whatever has become of the word meanwhile;
    also when its resource is another request's by now."""
    peer = await Peer.up(dut)
    p = peer.p
    await peer.fresh(depth=2)
    peer.store(8, bytes(range(8)))
    assert await peer.answer() == (ONLY, 0, 0x1F, b"")
    assert p.mrs[1].read(8, 8).tobytes() == bytes(range(8))
    other = np.full(8, 0xEE, np.uint8)
    p.mrs[1].write(other, 8)
    for _ in range(3):
        peer.store(8, bytes(range(8)), psn=0)
        assert await peer.answer() == (ONLY, 0, 0x1F, b"")
    for n in range(5):  # these take over the two resources
        peer.send(FLUSH, flush_headers(p.mrs[1], n, 100))
        assert await peer.answer() == (ONLY, 1 + n, 0x1F, b"")
    for psn in (0, 3, 1):
        if psn:
            peer.send(FLUSH, flush_headers(p.mrs[1], psn - 1, 100), psn=psn)
        else:
            peer.store(8, bytes(range(8)), psn=psn)
        assert await peer.answer() == (ONLY, psn, 0x1F, b"")
    assert np.array_equal(p.mrs[1].read(8, 8), other)
    counted = await p.nodes[1].counters()
    assert counted["duplicate_request"] == 6 and counted["duplicate_read_lost"] == 0
    peer.store(8, b"\1" * 8)  # and the connection goes on
    assert await peer.answer() == (ONLY, 6, 0x1F, b"")
    await Timer(1, "us")
    assert p.word(8) == int.from_bytes(b"\1" * 8, "little")
    await p.well()


@cocotb.test()
async def t_p6_lost_request_and_answer(dut):
    """T-P6: a request or an answer is lost, and another queue pair overwrites the word before the
    requester has noticed."""
    p = await Pair.up(dut)
    for turn, (role, wire) in enumerate(
        (
            ("read_resp_only:1", 1),
            ("read_resp_only:2-3", 1),
            ("atomic_write:1", 0),
            ("flush:1", 0),
        )
    ):
        p.system.testbench.wires[wire].impair(Impairments.parse(f"drop={role}"))
        wrs = [p.store(0, 1 + turn, 0), p.flush(0, 9, 1), p.store(8, 5 + turn, 2)]
        await p.qps[0].post_send(wrs)
        await Timer(15, "us")
        if wire == 1:  # it has come, and its requester does not know
            assert p.word(0) == 1 + turn
            p.mrs[1].write(np.full(8, 0xEE, np.uint8), 0)
        found = await p.good(3)
        assert [wc.wr_id for wc in found] == [0, 1, 2]
        assert p.word(0) == (0xEEEEEEEEEEEEEEEE if wire == 1 else 1 + turn)
        assert p.word(8) == 5 + turn
        p.system.testbench.wires[wire].impair()
    await p.well()


@cocotb.test()
async def t_p7_in_order(dut):
    """T-P7: sixteen READs and FLUSHes, and ATOMIC WRITEs, mixed; of the answers of one packet each
    of the first eight is lost once, then all sixteen are, and requests and answers at random."""
    p = await Pair.up(dut, options=QpOptions(access=RIGHTS, timeout=3, max_rd_atomic=16))
    rng = random.Random(3)
    for turn, bad in enumerate(
        (
            *(f"drop={role}:{n}" for n in range(1, 9) for role in ("read_resp_only",)),
            "drop=read_resp_only:1-16",
            "loss=10%",
        )
    ):
        for number, wire in enumerate(p.system.testbench.wires):
            wanted = bad if "drop" not in bad or number else "loss=0"
            wire.impair(Impairments.parse(f"{wanted},seed={turn + number + 1}"))
        octets, wrs = p.randomize(1, turn), []
        p.mrs[0].write(np.zeros(LENGTH, np.uint8))
        places = [4096 + 512 * n for n in range(16)]
        for n, at in enumerate(places):
            pick = rng.randrange(3)
            wrs.append(
                p.read(at, 300, n)
                if pick == 0
                else p.flush(at, 77, n)
                if pick == 1
                else p.store(8 * n, n + 1, n)
            )
        await p.qps[0].post_send(wrs)
        found = await p.good(16)
        assert [wc.wr_id for wc in found] == list(range(16)), bad
        await Timer(2, "us")
        for n, (at, wr) in enumerate(zip(places, wrs, strict=True)):
            if wr.opcode == WrOpcode.RDMA_READ:
                assert np.array_equal(p.mrs[0].read(300, at), octets[at : at + 300])
            if wr.opcode == WrOpcode.ATOMIC_WRITE:
                assert p.word(8 * n) == n + 1
    for wire in p.system.testbench.wires:
        wire.impair()
    await p.well()


@cocotb.test()
async def t_p8_peer_that_does_not_count(dut):
    """T-P8: forty FLUSHes without waiting, as Soft-RoCE may send them: no NAK, and all are answered
    at last, as the peer sends again what it has no answer to."""
    peer = await Peer.up(dut)
    for depth in (1, 4, 16):
        await peer.fresh(depth=depth)
        peer.p.nodes[1].host.set(mmio_latency_ns=0, read_latency_ns=5000)
        missing = 0
        for _ in range(40):
            peer.send(FLUSH, flush_headers(peer.p.mrs[1], 0, LENGTH, plt=3))
        rounds = 0
        while missing < 40:
            await Timer(40, "us")
            while (arrived := peer.wire.take()) is not None:
                opcode, psn, syndrome, payload = peer.said(arrived[0])
                assert (opcode, syndrome, payload) == (ONLY, 0x1F, b""), (opcode, syndrome)
                assert psn <= missing
                missing = max(missing, psn + 1)
            for psn in range(missing, 40):  # its timer has run out
                peer.send(FLUSH, flush_headers(peer.p.mrs[1], 0, LENGTH, plt=3), psn)
            rounds += 1
            assert rounds < 60
        assert rounds > 1
    await peer.p.well()


@cocotb.test()
async def t_p9_never_torn(dut):
    """T-P9: ATOMIC WRITEs of four queue pairs alternate two values, beside atomics on the same
    word; whoever looks sees one of them whole."""
    p = await Pair.up(dut)
    low, high = int.from_bytes(b"\x11" * 8, "little"), int.from_bytes(b"\xee" * 8, "little")
    qps = [p.qps, *[await connect(p.nodes, p.pds, p.cqs, OPTIONS) for _ in range(3)]]
    p.mrs[1].write(np.full(8, 0x11, np.uint8), 16)
    each = 24
    for n, (mine, _) in enumerate(qps):
        wrs = []
        for k in range(each):
            if n == 3:
                wr = SendWR(k, WrOpcode.ATOMIC_CMP_AND_SWP, [p.mrs[0].sge(4096 + 8 * k, 8)])
                wr.set_wr_atomic(p.mrs[1].rkey, p.mrs[1].iova + 16, low, high)
            else:
                wr = p.store(16, (low, high)[(k + n) % 2], k)
            wrs.append(wr)
        await mine.post_send(wrs)
    seen, left = set(), 4 * each
    while left:
        seen.add(p.word(16))
        found = await p.cqs[0].poll(64)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        left -= len(found)
        await Timer(100, "ns")
    assert seen == {low, high}
    results = {p.word(4096 + 8 * k, side=0) for k in range(each)}
    assert results <= {low, high}
    await p.well()


@cocotb.test()
async def t_p10_vectors(dut):
    """T-P10: the frames on the wire and the WQEs are those of the specification."""
    system = await System.start(dut, ALL)
    for number, node in enumerate(system.nodes):
        node.mac = bytes((2, 0, 0, 0, 0, number + 1))
        await node.context.add_gid(1, f"192.0.2.{number + 1}")
    p = Pair()
    p.system, p.nodes = system, system.nodes
    p.pds = [await node.context.alloc_pd() for node in p.nodes]
    p.cqs = [await CQ.create(node.context, 16) for node in p.nodes]
    p.nodes[1].function.hints.mr_key(0x2A01)
    mr = await MR.create(p.pds[1], 4096, RIGHTS, virt_addr=0x7F0000001000)
    for node, qpn in zip(p.nodes, (0x11, 0x12), strict=True):
        node.function.hints.qpn(qpn)
    options = QpOptions(access=RIGHTS, gid=1, psns=(0x100, 0), flow_label=1)
    await p.connect(options)
    wire = p.system.testbench.wires[0]
    wire.capture("placement.pcap")  # of both directions
    flush, region, store = (SendWR(n, WrOpcode.FLUSH) for n in (0xF1, 0, 0xF2))
    store.opcode = WrOpcode.ATOMIC_WRITE
    flush.set_wr_flush(mr.rkey, mr.iova, 0x300)
    region.set_wr_flush(mr.rkey, 0, 0, BOTH, FlushLevel.MR)
    store.set_wr_atomic_write(mr.rkey, mr.iova + 8, bytes(range(1, 9)))
    assert flush.pack(None) == VECTORS["WQE V-P1"] and store.pack(None) == VECTORS["WQE V-P4"]
    await p.qps[0].post_send([flush, region, store])
    await p.good(3)
    wire.end_capture()
    frames = {frame for _, frame in read_pcap("placement.pcap")}
    assert VECTORS["V-P1"] in frames
    tails = {frame[BTH_AT:] for frame in frames}
    for name in ("V-P2", "V-P3", "V-P4", "V-P5"):
        assert VECTORS[name] in tails, name


@cocotb.test()
async def t_p12_not_negotiated(dut):
    """T-P12: a driver that has not taken the feature: its queue pairs post neither and answer both
    with 61h; its regions cannot have the rights, and its queue pairs do not get them."""
    old = DriverOptions(features=ALL_FEATURES & ~RdmaFeature.PLACEMENT.mask)
    system = await System.start(dut, ALL)
    await system.nodes[1].context.close()
    system.nodes[1].stop_firmware()
    await system.nodes[1].start(old)
    p = Pair()
    p.system, p.nodes = system, system.nodes
    p.pds = [await node.context.alloc_pd() for node in p.nodes]
    p.cqs = [await CQ.create(node.context, 16) for node in p.nodes]
    try:
        await MR.create(p.pds[1], 4096, RIGHTS)
    except RdmaError:
        pass
    else:
        raise AssertionError("a right that the driver cannot know")
    p.mrs = [await MR.create(p.pds[0], LENGTH, RIGHTS), await MR.create(p.pds[1], LENGTH, PLAIN)]
    for wr in (p.flush(0, 8, kind=FlushType.GLOBAL), p.store(0, 1)):
        await p.ends(wr, INVALID)
    for opcode in COMPLETIONS:
        await p.connect()
        wr = SendWR(1, opcode)
        if opcode == WrOpcode.FLUSH:
            wr.set_wr_flush(p.mrs[0].rkey, p.mrs[0].iova, 8)
        else:
            wr.set_wr_atomic_write(p.mrs[0].rkey, p.mrs[0].iova, bytes(8))
        await p.qps[1].post_send(wr)
        (wc,) = await p.done(side=1)
        assert wc.status == WcStatus.LOC_QP_OP_ERR
    await p.well()


@cocotb.test()
async def through_loopback(dut):
    """Two queue pairs of one card."""
    system = await System.start(dut, ALL)
    p = Pair()
    p.system, p.nodes = system, [system.nodes[0]] * 2
    p.pds = [await p.nodes[0].context.alloc_pd()] * 2
    p.cqs = [await CQ.create(p.nodes[0].context, 64) for _ in range(2)]
    p.mrs = [await MR.create(pd, LENGTH, RIGHTS) for pd in p.pds]
    await p.connect()
    p.nodes[0].host.set(mmio_latency_ns=0, write_delay_ns=9000)
    for turn in range(6):
        octets = p.randomize(0, turn)
        await p.qps[0].post_send([p.write(100, 5000), p.store(0, turn + 1), p.flush(0, LENGTH)])
        found = await p.good(2)
        assert [wc.opcode for wc in found] == [WcOpcode.ATOMIC_WRITE, WcOpcode.FLUSH]
        assert np.array_equal(p.mrs[1].read(5000, 100), octets[100:5100])
        assert p.word(0) == turn + 1
    assert (await p.nodes[0].counters())["loopback_packets"] > 10
    await p.well()
