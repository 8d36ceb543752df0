"""Messages between two cards inside the simulation: what is posted, awaited and compared.

The driver's processor is infinitely fast: posting and polling take no simulated time, and a
completion is seen in the cycle in which it becomes visible in memory. Register writes take the
host's MMIO latency and are posted, as everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from cocotb.triggers import Event, SimTimeoutError, with_timeout

from hdl.abi.enums import Access, Mtu, QpType, SendFlags, WcOpcode, WcStatus, WrOpcode
from hdl.abi.virtio_pci import RING_HEADER
from sim.bench.bulk.loader import bulk
from sim.bench.system import Node, QpOptions, System, connect
from sim.guest.driver.platform import Octets
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    QP,
    SRQ,
    AHAttr,
    GlobalRoute,
    RecvWR,
    SendWR,
    SrqAttr,
)
from sim.measure.perf.plan import TLP_PAYLOAD, TLP_READ, USUAL_QPS, Plan, Shape
from sim.models.impairments import Impairments

__all__ = ["OPEN", "Ends", "Flow", "Side", "filled", "good"]

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
OPCODES = {
    "write": WrOpcode.RDMA_WRITE,
    "send": WrOpcode.SEND,
    "read": WrOpcode.RDMA_READ,
    "FETCH_AND_ADD": WrOpcode.ATOMIC_FETCH_AND_ADD,
    "CMP_AND_SWAP": WrOpcode.ATOMIC_CMP_AND_SWP,
}
#: Q_Key of datagram QPs.
QKEY = 0x1111_1111
#: What a FETCH_AND_ADD adds to a word of its own: a change of every byte.
STEP = 0x0101_0101_0101_0101
#: Bits of a work request's id that number the message; the QP's number is above them.
_SEQUENCE = 32
#: More messages than any flow has: it goes on until it is told to stop.
OPEN = 1 << _SEQUENCE


@dataclass
class Side:
    """One node's objects. ``wake`` is set whenever the card has written to what is looked at."""

    node: Node
    cqs: list[CQ]
    source: MR
    sink: MR
    wake: Event
    srq: SRQ | None
    peer: AH  # the way to the other node

    def look_at(self, addr: int, size: int) -> None:
        """From now on wake when the card has written there."""
        self.node.host.watch(addr, size, lambda _time: self.wake.set())

    async def sleep(self, ends: Ends) -> None:
        """Until the card has written; AssertionError with where everything stands if it does not.

        Clear ``wake`` before the last look at what is awaited.
        """
        patience = ends.plan.patience_us
        try:
            await with_timeout(self.wake.wait(), patience, "us")
        except SimTimeoutError:
            report = await ends.system.report()
            raise AssertionError(
                f"Nothing has come to node {self.node.name} for {patience:g} us\n{report}"
            ) from None


class Ends:
    """Two nodes with their regions, CQs and ``plan.qps`` connected QPs."""

    def __init__(self, system: System, plan: Plan):
        self.system, self.plan = system, plan
        self.sides: list[Side] = []
        self.qps: list[tuple[QP, QP]] = []

    async def set_up(self, say: Callable[[str], None]) -> None:
        """Make all objects; register accesses take no time meanwhile.

        More QPs than a card usually has are loaded in bulk.
        """
        plan, nodes = self.plan, self.system.nodes
        for node in nodes:
            node.host.set(mmio_latency_ns=0)
        with ExitStack() as loading:
            for node in nodes if plan.qps > USUAL_QPS else ():
                loading.enter_context(bulk(node))
            await self._objects(say)
        self.system.stop_firmware()  # from here on the hardware is alone
        for side in self.sides:
            for cq in side.cqs:
                side.look_at(cq.queue.used + RING_HEADER.offset("idx"), 2)
            side.node.host.set(
                read_latency_ns=plan.host_latency_ns,
                read_gbps=plan.host_gbps,
                write_gbps=plan.host_gbps,
                seed=plan.seed,
                tlp_payload=TLP_PAYLOAD if plan.tlp_headers else 0,
                tlp_read=TLP_READ if plan.tlp_headers else 0,
            )
        for wire in self.system.testbench.wires:
            wire.set(gbps=plan.line_gbps)
            wire.impair(Impairments.parse(plan.impair))

    async def _objects(self, say: Callable[[str], None]) -> None:
        """CQs, regions and connected QPs."""
        plan, nodes = self.plan, self.system.nodes
        shapes = [plan.shape(size) for size in plan.sizes]
        region = max(plan.region(size) for size in plan.sizes)
        most = plan.config.queue_size
        pds = [await node.context.alloc_pd() for node in nodes]
        for node, pd in zip(nodes, pds, strict=True):
            cqs = [await CQ.create(node.context, plan.cq_entries) for _ in range(plan.cqs)]
            mrs = [await MR.create(pd, region, RIGHTS) for _ in range(2)]
            srq = await SRQ.create(pd, SrqAttr(most)) if plan.use_srq else None
            peer = nodes[1 - len(self.sides)]
            route = GlobalRoute(dgid=peer.context.query_gid(1, 0), sgid_index=0)
            way = AH(pd, AHAttr(gr=route, roce_dmac=peer.mac))
            self.sides.append(Side(node, cqs, mrs[0], mrs[1], Event(), srq, way))
        options = QpOptions(
            mtu=Mtu[f"MTU_{plan.mtu}"],
            max_rd_atomic=plan.max_rd_atomic,
            timeout=plan.qp_timeout,
            access=RIGHTS,
            type=QpType[plan.connection],
            qkey=QKEY,
        )
        options.cap.max_send_wr = min(most, 2 * max(s.depth for s in shapes))
        options.cap.max_recv_wr = min(most, 2 * max(s.slots for s in shapes))
        options.cap.max_send_sge = options.cap.max_recv_sge = 1
        options.cap.max_inline_data = plan.inline
        for i in range(plan.qps):
            if i % max(16, plan.qps // 64) == 0:
                say(f"connecting QP {i + 1} of {plan.qps}")
            number = i * plan.cqs // plan.qps
            used, srqs = zip(*((side.cqs[number], side.srq) for side in self.sides), strict=True)
            self.qps.append(await connect(nodes, pds, used, options, srqs))


class Flow:
    """Messages of one QP in one direction: from slot to slot, compared, wiped, used again.

    ``requester`` is the number of the side that posts, ``quota`` how many messages. The sink is
    filled with the inverse of what is to come, again after each comparison, so a message that
    changes nothing is noticed.
    """

    def __init__(
        self, ends: Ends, shape: Shape, number: int, requester: int, data: Octets, quota: int
    ):
        plan = ends.plan
        self.shape, self.number, self.quota, self.requester = shape, number, quota, requester
        self.verb, self.fetches = plan.verb, plan.fetches
        self.opcode = OPCODES[plan.atomic_type if self.verb == "atomic" else self.verb]
        self.one_word, self.turns = plan.one_word, list[int]()
        self.qp, self.peer = ends.qps[number][requester], ends.qps[number][1 - requester]
        me, other = ends.sides[requester], ends.sides[1 - requester]
        self.source = other.source if self.fetches else me.source
        self.sink = me.sink if self.fetches else other.sink
        self.flags = SendFlags.INLINE if shape.size <= plan.inline else SendFlags(0)
        self.data = data
        self.places = plan.places_of(number, shape.size)
        # Places of the sink that no receive has, and that of each receive that was posted.
        self.free, self.lent = deque(self.places), dict[int, int]()
        self.area, self.answered = plan.area, plan.answered
        self.receives = self.peer if other.srq is None else other.srq
        self.way = me.peer if plan.connection == "UD" else None
        self.posted = self.completed = self.received = self.checked = self.given = 0
        self.verified = 0  # bytes
        self._name = f"{plan.op} of {shape.size} bytes on QP {self.qp.qp_num:#x}"

    def place(self, sequence: int) -> int:
        """Offset of a message in its region."""
        return self.places[sequence % len(self.places)]

    def signalled(self, sequence: int) -> bool:
        """Whether a request has a completion."""
        return sequence % self.shape.signal == self.shape.signal - 1

    def stop(self) -> None:
        """Post no more than it takes to use what receives there are, and to be told of the end."""
        signal, last = self.shape.signal, max(self.posted, self.given)
        self.quota = -(-last // signal) * signal

    @property
    def due(self) -> int:
        """How many requests can be posted now with one doorbell."""
        shape, outstanding = self.shape, self.posted - self.completed
        if self.verb == "send" and not self.answered:  # a message without a receive is lost
            outstanding = max(outstanding, self.posted - self.received)
        count = min(shape.batch, self.quota - self.posted)
        room = shape.depth - outstanding
        if count <= room:
            return count
        # Less than a batch only when nothing on the way will tell of its completion.
        return max(0, room) if outstanding < shape.signal - self.completed % shape.signal else 0

    async def post(self, count: int) -> None:
        """Post the next messages with one doorbell."""
        requests = [self._request(self.posted + i) for i in range(count)]
        self.posted += count
        await self.qp.post_send(requests)

    def _request(self, sequence: int) -> SendWR:
        shape = self.shape
        if self.verb != "send" and self.checked <= sequence - len(self.places):
            self.check(sequence - len(self.places))
        at = self.place(sequence)
        flags = self.flags | SendFlags.SIGNALED if self.signalled(sequence) else self.flags
        local, remote = self.source, self.sink
        if self.fetches:
            local, remote = remote, local
        request = SendWR(
            self.number << _SEQUENCE | sequence, self.opcode, [local.sge(at, shape.size)], flags
        )
        if self.verb == "atomic":
            word = 0 if self.one_word else at
            request.set_wr_atomic(remote.rkey, remote.iova + word, *self._operands(at))
        elif self.way is not None:
            request.set_wr_ud(self.way, self.peer.qp_num, QKEY)
        elif self.verb != "send":
            request.set_wr_rdma(remote.rkey, remote.iova + at)
        return request

    def _operands(self, at: int) -> tuple[int, ...]:
        """Of the next atomic on the word at ``at``, whose result is compared before the next."""
        if self.one_word:
            return (1,)
        if self.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD:
            return (STEP,)
        now = self._word(at)
        return now, now ^ STEP

    def _word(self, at: int) -> int:
        return int(self.data[at : at + 8].view("<u8")[0])

    def _changed(self, at: int) -> None:
        """The atomic on the word at ``at`` has been executed."""
        add = self.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD
        now = self._word(at)
        after = (now + STEP) % (1 << 64) if add else now ^ STEP
        self.data[at : at + 8].view("<u8")[0] = after

    async def give(self, count: int) -> None:
        """Post the next receives with one doorbell."""
        requests = []
        for i in range(self.given, self.given + count):
            self.lent[i] = at = self.free.popleft()
            sge = self.sink.sge(at, self.shape.size + self.area)
            requests.append(RecvWR(self.number << _SEQUENCE | i, [sge]))
        self.given += count
        await self.receives.post_recv(requests)

    def take_back(self, receive: int) -> int:
        """A receive has completed: the place that it had, which the next one can have."""
        at = self.lent.pop(receive)
        self.free.append(at)
        return at

    def check(self, sequence: int, landed: int | None = None) -> None:
        """Compare a message with what was sent; its place is ready for another one then.

        landed: the place in the sink, if it is another one than in the source.
        """
        if sequence != self.checked:
            raise AssertionError(f"{self._name}: message {sequence} before {self.checked}")
        at, size = self.place(sequence), self.shape.size
        expected = self.data[at : at + size]
        landed = (at if landed is None else landed) + self.area
        got = self.sink.read(size, landed)
        if self.one_word:  # compared when all have come
            self.turns.append(int(got.view("<u8")[0]))
        elif not np.array_equal(got, expected):
            wrong = np.flatnonzero(got != expected)
            raise AssertionError(
                f"{self._name}: {wrong.size} bytes of message {sequence} differ, the first at "
                f"{wrong[0]}"
            )
        self.sink.write(~expected, landed)
        if self.verb == "atomic" and not self.one_word:
            self._changed(at)
        self.checked += 1
        self.verified += size


@contextmanager
def filled(ends: Ends, size: int) -> Iterator[list[Octets]]:
    """Random bytes in both sources and their inverse in both sinks; yields the bytes of each."""
    region = ends.plan.region(size)
    found = []
    for i, side in enumerate(ends.sides):
        data = np.random.default_rng([ends.plan.seed, size, i]).integers(0, 256, region, np.uint8)
        side.source.write(data)
        found.append(data)
    for side, data in zip(ends.sides, reversed(found), strict=True):
        side.sink.write(~data)
    yield found


def good(found: Iterable[Any], size: int) -> Iterator[tuple[int, int, int | None]]:
    """Flow, number of the request, and for a receive the QP that took it, of each completion.

    size: what a receive brings. AssertionError when one is in error or of another length.
    """
    for wc in found:
        if wc.status != WcStatus.SUCCESS:
            raise AssertionError(f"A completion in error: {wc}")
        receive = wc.opcode == WcOpcode.RECV
        if receive and wc.byte_len != size:
            raise AssertionError(f"A receive of {wc.byte_len} bytes, not {size}: {wc}")
        taker = wc.qp_num if receive else None
        yield wc.wr_id >> _SEQUENCE, wc.wr_id & ((1 << _SEQUENCE) - 1), taker
