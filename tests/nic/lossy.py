"""Two cards and the bad network between them: messages, and what must have become of them."""

import os
import random

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, Mtu, SendFlags, WcFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, RecvWR, SendWR
from tests.nic.card import CONFIG

SEED = int(os.environ.get("COCOTB_RANDOM_SEED", "1"))
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
#: Of one message, and how many there are in a region.
SLOT, SLOTS = 1 << 13, 64
OPCODES = (
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.RDMA_READ,
)
SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)
#: Those that take a receive WQE.
TAKERS = (*SENDS, WrOpcode.RDMA_WRITE_WITH_IMM)
#: 32.8 us: longer than anything takes here without loss.
QUICK = QpOptions(mtu=Mtu.MTU_1024, timeout=3, min_rnr_timer=1)
WAIT_NS = 4_000_000


def immediate(opcode, number):
    """The immediate of a message; 0 if it has none."""
    return (number * 0x9E3779B1) & 0xFFFFFFFF if opcode.name.endswith("WITH_IMM") else 0


class Side:
    """A node with what it sends (``source``) and where messages end (``sink``)."""

    def __init__(self, node):
        self.node = node

    async def up(self, rng):
        self.node.host.set(mmio_latency_ns=0)
        self.pd = await self.node.context.alloc_pd()
        self.cq, self.receives = [await CQ.create(self.node.context, 512) for _ in range(2)]
        self.source = await MR.create(self.pd, SLOT * SLOTS, RIGHTS, offset=5)
        self.sink = await MR.create(self.pd, SLOT * SLOTS, RIGHTS, offset=3)
        self.data = np.frombuffer(rng.randbytes(SLOT * SLOTS), np.uint8)
        self.source.write(self.data)


class WayOut:
    """The network behind a card: what it has taken and added, however often it has changed."""

    def __init__(self, wire):
        self._wire = wire
        self._surplus = 0  # of frames, under the settings before those of now

    @property
    def outward(self):
        return self._wire.outward

    def impair(self, what=None):
        self._surplus = self.surplus
        self._wire.impair(what)

    @property
    def surplus(self):
        """Frames that it has added, less those that it has taken."""
        return self._surplus + self.outward.duplicated - self.outward.gone

    @property
    def sent(self):
        """Frames that the card has sent."""
        return self._wire.stats.tx_frames


class Lossy:
    """Two sides; ``send`` posts messages whose completions and data ``completions`` compares."""

    def __init__(self, system, rng):
        self.system, self.rng = system, rng
        self.wires = [WayOut(wire) for wire in system.testbench.wires]
        self.sides = [Side(node) for node in system.nodes]

    @classmethod
    async def up(cls, dut, **bench):
        system = await System.start(dut, CONFIG, deadline_cycles=8_000_000, **bench)
        self = cls(system, random.Random(SEED))
        for side in self.sides:
            await side.up(self.rng)
        return self

    async def connect(self, options=QUICK):
        """A connection whose QPs complete into the sides' queues."""
        nodes, pds = self.system.nodes, [side.pd for side in self.sides]
        return await connect(nodes, pds, [side.cq for side in self.sides], options)

    def message(self, side, opcode, slot, length, number):
        """A WR of ``side`` that moves a slot's data, and the peer's receive for it, or None."""
        mine, theirs = self.sides[side], self.sides[1 - side]
        source, sink = self._ends(side, opcode)
        at = SLOT * slot
        sink.sink.write(~source.data[at : at + length], at)
        reads = sink is mine
        local = (mine.sink if reads else mine.source).sge(at, length)
        wr = SendWR(number, opcode, [local], SendFlags.SIGNALED, imm_data=immediate(opcode, number))
        if opcode in SENDS:
            return wr, RecvWR(number, [theirs.sink.sge(at, length)])
        remote = theirs.source if reads else theirs.sink
        wr.set_wr_rdma(remote.rkey, remote.iova + at)
        return wr, RecvWR(number, []) if opcode in TAKERS else None

    def _ends(self, side, opcode):
        """From whom to whom the data goes."""
        mine, theirs = self.sides[side], self.sides[1 - side]
        return (theirs, mine) if opcode == WrOpcode.RDMA_READ else (mine, theirs)

    def check(self, side, opcode, slot, length):
        """What the message has moved."""
        source, sink = self._ends(side, opcode)
        at = SLOT * slot
        found, expected = sink.sink.read(length, at), source.data[at : at + length]
        assert np.array_equal(found, expected), (side, opcode, slot, length)

    async def send(self, pair, side, what, *, first=0, late_ns=0):
        """Post messages (opcode, slot, length) of one side; receives come ``late_ns`` later.

        Their ids count from ``first`` on. Returns what ``completions`` takes."""
        found = {first + n: one for n, one in enumerate(what)}
        both = [self.message(side, *one, number) for number, one in found.items()]
        receives = [receive for _, receive in both if receive]
        if receives and not late_ns:
            await pair[1 - side].post_recv(receives)
        await pair[side].post_send([wr for wr, _ in both])
        if receives and late_ns:
            await Timer(late_ns, "ns")
            await pair[1 - side].post_recv(receives)
        return {(side, number): one for number, one in found.items()}

    async def traffic(self, qps, *, messages=12, longest=3 * 1024, sides=(0, 1)):
        """Random messages of all QPs and sides at once; every completion once, in order."""
        sent = {}
        free = [list(range(SLOTS)) for _ in range(2)]  # slots of each sink
        for n, pair in enumerate(qps):
            for side in sides:
                what = []
                for opcode in self.rng.choices(OPCODES, k=messages):
                    slot = free[side if opcode == WrOpcode.RDMA_READ else 1 - side].pop()
                    what.append((opcode, slot, self.rng.randrange(1, longest)))
                sent |= await self.send(pair, side, what, first=n << 16)
        await self.completions(sent)

    async def completions(self, sent):
        """``sent``: (side, wr_id) -> opcode, slot, length."""
        for side in range(2):
            sends = [wr_id for where, wr_id in sent if where == side]
            receives = [
                wr_id
                for (where, wr_id), (opcode, *_) in sent.items()
                if where != side and opcode in TAKERS
            ]
            found = await self.sides[side].cq.wait(len(sends) + len(receives), timeout_ns=WAIT_NS)
            assert all(wc.status == WcStatus.SUCCESS for wc in found), found
            got = {False: [], True: []}
            for wc in found:
                got[wc.opcode >= 128].append(wc.wr_id)
                if wc.opcode >= 128:
                    opcode, *_ = sent[1 - side, wc.wr_id]
                    marked = bool(wc.wc_flags & WcFlags.WITH_IMM)
                    assert marked == opcode.name.endswith("WITH_IMM"), wc
                    assert not marked or wc.imm_data == immediate(opcode, wc.wr_id), wc
            for kind, expected in ((False, sends), (True, receives)):
                assert sorted(got[kind]) == sorted(expected)
                for qp in {wr_id >> 16 for wr_id in expected}:
                    one = [wr_id for wr_id in got[kind] if wr_id >> 16 == qp]
                    assert one == sorted(one), (side, qp, one)
        for (side, _), what in sent.items():
            self.check(side, *what)

    async def well(self):
        """A new connection works on a good network, and each frame is accounted for."""
        for wire in self.wires:
            wire.impair()
        await Timer(20, "us")
        await self.traffic([await self.connect()], messages=4)
        await Timer(20, "us")
        for side in self.sides:
            assert await side.cq.poll(1) == []
            assert not side.node.host.faults, side.node.host.faults
        await self.accounts()

    async def accounts(self):
        """Frames that a card has sent are those that the other one counts, or the network."""
        counters = await self.counters()
        for side, wire in enumerate(self.wires):
            here, there = counters[side], counters[1 - side]
            drops = {name: n for name, n in there.items() if name.startswith("rx_drops") and n}
            assert here["tx_packets"] == wire.sent, (side, here)
            assert there["rx_packets"] + sum(drops.values()) == wire.sent + wire.surplus, (
                side,
                drops,
            )

    async def damage(self, before):
        """A card drops no frame since ``before`` but what the network has damaged, and copies."""
        after = await self.counters()
        for side in range(2):
            drops = {n: after[1 - side][n] - before[1 - side][n] for n in after[0]}
            stats = self.wires[side].outward
            doubled = stats.duplicated if stats.corrupted else 0
            found = sum(count for name, count in drops.items() if name.startswith("rx_drops"))
            assert found <= stats.corrupted + doubled, drops

    async def counters(self):
        return [await side.node.counters() for side in self.sides]
