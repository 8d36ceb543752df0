"""Two whole cards, the second of which has receive queues whose requests take several packets."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, QpAttrMask, QpState, WcStatus, WrOpcode
from hdl.abi.virtio_rdma import POST_RECV
from hdl.wire.opcodes import Operation, Transport
from sim.bench.system import QpOptions, System, join, together
from sim.guest.driver.memory import view
from sim.guest.verbs import (
    CQ,
    MR,
    QP,
    SRQ,
    AHAttr,
    GlobalRoute,
    MpWr,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SendWR,
    SrqAttr,
)
from sim.wire import packets as pk
from tests.mp_wr_source import Completed, Source
from tests.nic.card import ALL

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
#: RNR pauses of 10 us, without end; 32.8 us are longer than anything takes here without loss.
OPTIONS = QpOptions(access=RIGHTS, timeout=3, rnr_retry=7, min_rnr_timer=1)
WAIT_NS = 4_000_000
#: What lies in a buffer before something has come.
EMPTY = 0xEE
FIRST = 0xA0  # number of the first request


class MpWrPair:
    """``buffers`` requests of ``buffer`` bytes can be posted at a time, each at a place of its own.
    ``source`` is the model of the queue: it knows what has been posted and sent."""

    @classmethod
    async def up(cls, dut, buffer, align, *, buffers=4, qps=1, shared=False, **more):
        options, driver = more.pop("options", {}), more.pop("driver", None)
        system = await System.start(dut, more.pop("config", ALL), options=driver, **more)
        self = cls(system, system.nodes, buffers, shared, options)
        return await self.prepare(buffer, align, qps)

    def __init__(self, system, nodes, buffers=4, shared=False, options=None):
        """On two nodes of a system that is up."""
        self.options = replace(OPTIONS, **(options or {}))
        self.shared, self.buffers = shared, buffers
        self.system, self.nodes = system, nodes

    async def prepare(self, buffer, align, qps=1):
        """See ``objects``; the driver's doorbells take no time."""
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        await self.objects(buffer, align, qps)
        return self

    async def objects(self, buffer, align, qps=1):
        """A region, a CQ and queue pairs on each side."""
        here, there = (node.context for node in self.nodes)
        self.pds = [await node.context.alloc_pd() for node in self.nodes]
        self.cqs = [await CQ.create(here, 256)]
        entries = min(1024, there.query_device().max_cqe)
        self.cqs.append(await CQ.create(there, entries, with_mp_wr=True))
        self.mr = await MR.create(self.pds[0], 1 << 20, RIGHTS, offset=3)
        self.data = np.random.default_rng(7).integers(0, 256, self.mr.length, np.uint8)
        self.mr.write(self.data)
        # Behind the last buffer something that nobody may write, too.
        self.sink = await MR.create(self.pds[1], buffer * self.buffers + 64, RIGHTS, offset=8)
        self.target = await MR.create(self.pds[1], 8192, RIGHTS)  # of WRITEs
        self.sink.write(np.full(self.sink.length, EMPTY, np.uint8))
        self.mp_wr = MpWr(buffer, align)
        self.srq = None
        if self.shared:
            self.srq = await SRQ.create(self.pds[1], SrqAttr(64, 4), mp_wr=self.mp_wr)
        self.source, self.posted, self.buffer = Source(buffer, align), 0, buffer
        self.pairs = [await self.connect() for _ in range(qps)]

    async def connect(self):
        """Another connection, as a QP on each side."""
        o = self.options
        attrs = (
            QPInitAttr(o.type, self.cqs[0], self.cqs[0], replace(o.cap), o.sq_sig_all),
            QPInitAttr(
                o.type,
                self.cqs[1],
                self.cqs[1],
                replace(o.cap),
                o.sq_sig_all,
                self.srq,
                mp_wr=None if self.shared else self.mp_wr,
            ),
        )
        qps = await together(
            *(QP.create(pd, attr) for pd, attr in zip(self.pds, attrs, strict=True))
        )
        await join(self.nodes, (qps[0], qps[1]), o)
        return qps

    def receiver(self):
        """Attributes with which another QP of the second card hears the first card's first QP."""
        other, o = self.nodes[0], self.options
        route = GlobalRoute(dgid=other.context.query_gid(1, 0))
        return QPAttr(
            path_mtu=o.mtu,
            dest_qp_num=self.pairs[0][0].qp_num,
            rq_psn=0,
            min_rnr_timer=o.min_rnr_timer,
            ah_attr=AHAttr(gr=route, roce_dmac=other.mac),
        )

    async def again(self, buffer=None, align=None):
        """A new receive queue, with nothing in it, and a connection to it."""
        for qp in self.pairs.pop():
            await qp.close()
        if buffer is not None:
            await self.sink.close()
            self.sink = await MR.create(self.pds[1], buffer * self.buffers + 64, RIGHTS, offset=8)
            self.mp_wr, self.buffer = MpWr(buffer, align), buffer
        self._forget()
        self.pairs = [await self.connect()]

    def _forget(self):
        self.sink.write(np.full(self.sink.length, EMPTY, np.uint8))
        self.source = Source(self.mp_wr.buffer, self.mp_wr.align)
        self.posted = 0

    async def restart(self):
        """Both ends go to RESET and come back."""
        for qp in self.pairs[0]:
            await qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
        self._forget()
        await join(self.nodes, self.pairs[0], self.options)

    def can_take(self, length):
        """Whether a SEND of so many bytes finds requests, whatever is left of the open one, and
        none that is not checked yet is overwritten."""
        room = len(self.source.wrs) - 1
        return room * self.buffer >= 2 * length and self.posted <= self.buffers

    async def check_last(self):
        """``check``, if something has completed."""
        assert self.source.done
        return await self.check()

    def spoil_requests(self):
        """Overwrites the elements of the receive queue: who reads one again finds no request."""
        queue = self.srq.queue if self.srq else self.pairs[0][1].rq
        for addr in queue.ring.pending:
            view(queue.ctx.memory, addr, POST_RECV.size)[:] = 0xFF

    @property
    def mtu(self):
        return self.options.mtu.octets

    def place(self, number):
        """Where in the region the buffer of a request is."""
        return (number - FIRST) % self.buffers * self.buffer

    async def post(self, count=1, *, cuts=()):
        """Requests, each cut into SGEs at ``cuts``."""
        requests = []
        for number in range(FIRST + self.posted, FIRST + self.posted + count):
            edges = [0, *cuts, self.buffer]
            place = self.place(number)
            sges = [self.sink.sge(place + a, b - a) for a, b in pairwise(edges)]
            requests.append(RecvWR(number, sges))
            self.source.wrs.append(number)
        self.posted += count
        await (self.srq or self.pairs[0][1]).post_recv(requests)

    def request(self, at, length, opcode=WrOpcode.SEND, **more):
        wr = SendWR(more.pop("number", 1), opcode, [self.mr.sge(at, length)], **more)
        if opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM):
            wr.set_wr_rdma(self.sink.rkey, self.sink.iova)
        return wr

    def bytes(self, at, length):
        return self.data[at : at + length].tobytes()

    async def send(self, lengths, *, pair=0, at=0, known=True):
        """SENDs of so many bytes, one behind the other; the model takes them, if that is known."""
        requests = []
        for length in lengths:
            requests.append(self.request(at, length))
            if known:
                count = self.source.message(
                    self.bytes(at, length), self.mtu, self.pairs[pair][1].qp_num
                )
                assert count == max(1, -(-length // self.mtu))
            at = (at + length) % (self.mr.length // 2)
        for n in range(0, len(requests), 32):
            batch = requests[n : n + 32]
            await self.pairs[pair][0].post_send(batch)
            await self.good(len(batch))

    async def good(self, count=1):
        """So many requests of the sender have ended well."""
        found = await self.cqs[0].wait(count, timeout_ns=WAIT_NS)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found

    async def done(self, count):
        return await self.cqs[1].wait(count, timeout_ns=WAIT_NS)

    async def check(self, found=None):
        """What has completed is what the model says, and so is the memory, each byte of it.
        ``found``: what has been taken from the CQ."""
        expected, self.source.done = self.source.done, []
        if found is None:
            found = [Completed.of(wc) for wc in await self.done(len(expected))]
        for n, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours == theirs, (n, ours, theirs)
        image = np.full(self.sink.length, EMPTY, np.uint8)
        for number, pieces in self.source.memory.items():
            for place, octets in pieces.items():
                at = self.place(number) + place
                image[at : at + len(octets)] = np.frombuffer(octets, np.uint8)
        seen = self.sink.read(self.sink.length)
        wrong = np.flatnonzero(seen != image)
        assert not wrong.size, (wrong[:4], seen[wrong[:4]], image[wrong[:4]])
        return found

    async def well(self):
        """Nothing is left over, and the hosts have seen nothing that they should not."""
        for cq in self.cqs:
            assert await cq.poll(1) == []
        for node in self.nodes:
            assert not node.host.faults, node.host.faults


class Wire:
    """Python in the place of the first card, as the peer of the second one's first QP."""

    @classmethod
    async def up(cls, dut, buffer, align, **more):
        """A ``MpWrPair`` with such a ``wire``."""
        options = {"psns": (0, 0)} | more.pop("options", {})
        pair = await MpWrPair.up(dut, buffer, align, connect=False, options=options, **more)
        pair.wire = cls(pair)
        return pair

    def __init__(self, pair):
        self._pair, self.psn = pair, 0
        self._wire = pair.system.testbench.wires[1]

    def send(self, opcode, body=b"", *, psn=None, qp=None, **fields):
        """A packet; ``psn``: not the next one."""
        if psn is None:
            psn, self.psn = self.psn, self.psn + 1
        there, here = self._pair.nodes
        frame = pk.build(
            opcode,
            payload=bytes(body),
            dst_mac=here.mac,
            src_mac=there.mac,
            dst_gid=here.context.query_gid(1, 0),
            src_gid=there.context.query_gid(1, 0),
            dest_qp=(qp or self._pair.pairs[0][1]).qp_num,
            pkey=0xFFFF,
            psn=psn,
            **({"ack_request": 1} | fields),
        )
        self._wire.inject(frame)

    def message(self, octets, service=Transport.RC):
        """Opcode and payload of each packet of a SEND."""
        mtu = self._pair.mtu
        parts = [octets[n : n + mtu] for n in range(0, len(octets), mtu)] or [b""]
        for n, part in enumerate(parts):
            first, last = n == 0, n + 1 == len(parts)
            name = "ONLY" if first and last else "FIRST" if first else "LAST" if last else "MIDDLE"
            yield service << 5 | Operation[f"SEND_{name}"], part

    async def answer(self):
        """PSN and syndrome of the next frame that the card sends, an ACK or a NAK."""
        frame, _ = await self._wire.receive(WAIT_NS)
        return int.from_bytes(frame[51:54], "big"), frame[54]

    async def quiet(self, us=5):
        """Lets what is on its way arrive, and forgets the answers."""
        await Timer(us, "us")
        while self._wire.take() is not None:
            pass
