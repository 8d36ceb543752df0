"""The rows of the demonstration's table: what is sent in each, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cocotb.triggers import Event, Timer

from hdl.abi.enums import Access, QpType, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.abi.virtio_rdma import FIRST_USER_QP_INDEX, GRH_SIZE
from hdl.config import CardFeature
from hdl.wire.opcodes import Kind
from sim.bench.system import VISIBLE_NS, QpOptions, System, connect, connect_dynamic, join
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    XRCD,
    AHAttr,
    DcDestination,
    FastMR,
    GlobalRoute,
    Mkey,
    MpWr,
    QPInitAttr,
    SrqAttr,
)
from sim.guest.verbs.context import Resource
from sim.measure.demo.scope import PACKETS, Scope, close, patience_ns, setting_up
from sim.measure.flow import (
    PIECES,
    QKEY,
    Flow,
    Lane,
    PieceFlow,
    Shape,
    Traffic,
    compare,
    finished,
    good,
    pieces,
)
from sim.measure.side import Side

__all__ = ["OPERATIONS", "SERVICES", "SIZES", "Row", "left_out", "play", "sizes_of"]

_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
#: Longer than a message takes from the sender's completion to the peer's memory.
_WAY_NS = 20_000
#: Where a region begins in its page, and bytes that it has behind the last message.
_OFFSET, _REST = 37, 512
#: Message size in bytes -> messages, of each of ``OPERATIONS``.
SIZES = {1: 32, 64: 32, 1024: 32, 4096: 32, 65536: 16, 1 << 20: 4}
#: What a card needs for QPs of a type, and RC has not.
_SERVICES = {
    QpType.UC: CardFeature.UC,
    QpType.UD: CardFeature.UD,
    QpType.XRC_INI: CardFeature.XRC,
    QpType.DCI: CardFeature.DC,
}
OPERATIONS = {
    "SEND": WrOpcode.SEND,
    "WRITE": WrOpcode.RDMA_WRITE,
    "READ": WrOpcode.RDMA_READ,
}


@dataclass(frozen=True)
class Row:
    """``name`` and ``size`` of the row, and what its requests are; ``srq``: into a shared receive
    queue, of XRC into one of a domain, of DC into that of a target. ``pieces``: a receive takes
    ``PIECES`` messages (MP WR). ``entries``: each message is that many pieces of a region, which an
    indirect key names. ``count``: messages back to back, after one alone."""

    name: str
    size: int
    opcode: WrOpcode
    kind: QpType = QpType.RC
    srq: bool = False
    pieces: bool = False
    entries: int = 0
    count: int = 32

    @property
    def dynamic(self) -> bool:
        """Whether the firmware makes its connection when the first message goes out."""
        return self.kind == QpType.DCI

    @property
    def area(self) -> int:
        """Bytes in front of what is received."""
        return GRH_SIZE if self.kind == QpType.UD else 0

    @property
    def word(self) -> bool:
        """Whether its messages are words, which lie at multiples of their size."""
        return WORK_REQUESTS[self.opcode].kind is Kind.ATOMIC

    @property
    def octets(self) -> int:
        """What all its messages take of a region."""
        return (self.count + 1) * (self.size + self.area) + _REST

    def places(self, length: int) -> range:
        """Offsets of its messages in a region of so many bytes."""
        total = self.count + 1
        stride = (length - 16) // total
        stride -= stride % self.size if self.word else 0
        stride = self.size if self.pieces else stride
        return range(0, total * stride, stride)

    @property
    def rights(self) -> Access:
        """Of its regions and queue pairs."""
        rights = _RIGHTS | Access.REMOTE_ATOMIC if self.word else _RIGHTS
        return rights | Access.FLUSH_GLOBAL if self.opcode == WrOpcode.FLUSH else rights

    @property
    def features(self) -> set[CardFeature]:
        """What a card needs for it."""
        found = {CardFeature.SRQ} if self.srq else set()
        if self.pieces:
            found.add(CardFeature.MP_WR)
        if self.entries:
            found.add(CardFeature.MKEYS)
        if self.kind in _SERVICES:
            found.add(_SERVICES[self.kind])
        return found | ({WORK_REQUESTS[self.opcode].feature} - {CardFeature.BASE})

    def lacks(self, scope: Scope) -> str:
        """Why a card cannot do it; empty if it can."""
        card = scope.card
        if missing := sorted(one.value for one in self.features - card.features):
            return f"no {', '.join(missing)}"
        keys = self.count + 1 if self.opcode == WrOpcode.SEND_WITH_INV else 0
        for name, needed in (
            ("mtu", self.size if self.kind == QpType.UD else 0),
            ("qps", FIRST_USER_QP_INDEX + 1 + self.srq + self.dynamic),
            ("mrs", 1 + keys),
            ("layouts", self.count + 1 if self.entries else 0),
        ):
            if getattr(card, name) < needed:
                return f"{name} below {needed}"
        return ""


#: The rows beside SEND, WRITE and READ of RC.
SERVICES = (
    Row("FETCH_ADD", 8, WrOpcode.ATOMIC_FETCH_AND_ADD),
    Row("CMP_SWAP", 8, WrOpcode.ATOMIC_CMP_AND_SWP),
    Row("SEND_INV", 64, WrOpcode.SEND_WITH_INV, count=4),
    Row("SEND, SRQ", 64, WrOpcode.SEND, srq=True),
    Row("UC SEND", 4096, WrOpcode.SEND, QpType.UC),
    Row("UC WRITE", 4096, WrOpcode.RDMA_WRITE, QpType.UC),
    Row("UD SEND", 64, WrOpcode.SEND, QpType.UD),
    Row("UD SEND", 4096, WrOpcode.SEND, QpType.UD),
    Row("XRC SEND", 64, WrOpcode.SEND, QpType.XRC_INI, srq=True),
    Row("DC SEND", 64, WrOpcode.SEND, QpType.DCI, srq=True),
    Row("SEND, MP WR", 64, WrOpcode.SEND, pieces=True, count=PIECES - 1),
    Row("WRITE, MKEY", 4096, WrOpcode.RDMA_WRITE, entries=8, count=4),
    Row("WRITE, FLUSH", 4096, WrOpcode.FLUSH),
    Row("ATOMIC_WRITE", 8, WrOpcode.ATOMIC_WRITE),
)


def sizes_of(scope: Scope, longest: int) -> dict[int, int]:
    """Message size in bytes -> messages, of sizes up to ``longest``, that a card is asked for."""
    counts = {size: scope.messages(size, count) for size, count in SIZES.items()}
    return {size: count for size, count in counts.items() if count and size <= longest}


def left_out(scope: Scope) -> list[dict[str, Any]]:
    """The rows that a card is not asked for, and why."""
    long = [
        {"op": name, "size": size, "why": f"mtu below {size // PACKETS}"}
        for name in OPERATIONS
        for size, count in SIZES.items()
        if not scope.messages(size, count)
    ]
    return long + [
        {"op": row.name, "size": row.size, "why": why}
        for row in SERVICES
        if (why := row.lacks(scope))
    ]


@dataclass
class _Pair:
    """Two connected queue pairs, with a region of each side.

    keys: of regions at the receiver, which messages invalidate, one each. ways: where messages of
    DC go. layouts: of the sender, by place the indirect key that messages name. resources: all of
    its objects, in the order in which they close.
    """

    system: System
    scope: Scope
    qps: tuple[QP, QP]
    sides: list[Side]
    keys: list[int]
    ways: list[int]
    layouts: dict[int, Mkey]
    resources: list[Resource]

    @classmethod
    async def create(cls, rows: list[Row], system: System, timeout: int, scope: Scope) -> _Pair:
        """Both ends in RTS, for rows of one kind, one after the other."""
        first, nodes, depth = rows[0], system.nodes, scope.depth
        pds = [await n.context.alloc_pd() for n in nodes]
        shows = {"with_mp_wr": first.pieces}
        cqs = [await CQ.create(n.context, scope.completions, **shows) for n in nodes]
        octets = max(row.octets for row in rows)
        rights, offset = first.rights, 0 if first.word else _OFFSET
        mrs = [await MR.create(pd, octets, rights, offset=offset) for pd in pds]
        options = scope.options(timeout, kind=first.kind, access=rights, qkey=QKEY)
        if first.pieces:
            options.mp_wr = MpWr(PIECES * first.size, first.size)
        domain = await XRCD.create(nodes[1].context) if first.kind == QpType.XRC_INI else None
        srq = None
        if first.srq:
            srq = await SRQ.create(pds[1], SrqAttr(max_wr=depth), xrcd=domain, cq=cqs[1])
        ways = list[DcDestination]()
        if first.dynamic:
            assert srq is not None, "a target has a shared receive queue"
            one, targets, ways = await connect_dynamic(nodes[1], pds, cqs, srq, options, 1)
            qps = one, targets[0]
        elif domain is None:
            qps = await connect(nodes, pds, cqs, options, (None, srq))
        else:
            qps = await _extended(system, pds, cqs[0], domain, options)
        sides = []
        for n, node in enumerate(nodes):
            peer = nodes[1 - n]
            route = GlobalRoute(dgid=peer.context.query_gid(1, 0))
            way = AH(pds[n], AHAttr(gr=route, roce_dmac=peer.mac))
            queue = srq if n == 1 else None
            sides.append(Side(node, [cqs[n]], mrs[n], mrs[n], Event(), queue, way))
            sides[n].look_at_completions()
        regions = []
        if first.opcode == WrOpcode.SEND_WITH_INV:
            for _ in range(first.count + 1):
                region = await FastMR.create(pds[1], 1, rights)
                await region.map(64)
                regions.append(region)
                await qps[1].post_send(region.reg_wr(rights))
                finished(await cqs[1].wait(timeout_ns=patience_ns(0)))
        keys = [region.key for region in regions]
        layouts = await _lay_out(first, qps[0], sides[0], pds[0]) if first.entries else {}
        shared = [one for one in (srq, domain) if one is not None]
        resources: list[Resource]
        resources = [*ways, *qps, *shared, *regions, *layouts.values(), *mrs, *cqs, *pds]
        numbers = [way.number for way in ways]
        return cls(system, scope, qps, sides, keys, numbers, layouts, resources)

    def flow(self, row: Row, data: Any) -> Flow:
        """The messages of a row from side 0, with random bytes at the source and their inverse at
        the sink; ``data``: those bytes."""
        me, other = self.sides
        places = row.places(me.source.length)
        answered = row.kind in (QpType.RC, QpType.XRC_INI, QpType.DCI)
        traffic = Traffic(
            row.name, row.opcode, places, area=row.area, answered=answered, keys=self.keys
        )
        source, sink = (other, me) if traffic.fetches else (me, other)
        source.source.write(data)
        sink.sink.write(~data)
        lane = Lane(
            0,
            0,
            *self.qps,
            source=source.source,
            sink=sink.sink,
            receives=other.srq or self.qps[1],
            way=me.peer if row.kind == QpType.UD else None,
            srq_num=other.srq.srq_num if other.srq else None,
            destinations=self.ways,
            layouts=self.layouts,
        )
        depth, total = self.scope.depth, len(places)
        shape = Shape(row.size, depth, depth, 1, total, places.step, 1, row.count)
        kind = PieceFlow if row.pieces else Flow
        return kind(lane, traffic, shape, data, total)

    async def batch(self, flow: Flow, count: int) -> tuple[int, int]:
        """Messages back to back; simulated time of the first post and the last completion."""
        now, me, other = self.sides[0].node.host.now, *self.sides
        if flow.traffic.sends and (lacking := flow.posted + count - flow.given) > 0:
            await flow.give(lacking)
        begin = now()
        await flow.post(count)
        await self._until(flow, me, lambda: flow.completed == flow.posted)
        end = now()
        if flow.traffic.sends:
            await self._until(flow, other, lambda: flow.received == flow.posted)
        return begin, end

    async def _until(self, flow: Flow, side: Side, there: Callable[[], bool]) -> None:
        """Take the completions of a side until all are there."""
        size = flow.shape.size + flow.traffic.area
        segment = flow.shape.stride if isinstance(flow, PieceFlow) else 0
        patience_us = patience_ns(flow.shape.depth * size) / 1000
        while True:
            side.wake.clear()
            for cq in side.cqs:
                for _, sequence, taker in good(await cq.poll(cq.cqe), size, segment):
                    if taker is None:
                        flow.completed = sequence + 1
                        flow.show()
                    else:
                        flow.received = sequence + 1
            if there():
                return
            await side.sleep(self.system, patience_us)

    def batches(self, flow: Flow, count: int) -> Iterator[int]:
        """Messages of each batch: as many as the queues hold."""
        depth = self.scope.depth // flow.traffic.requests
        return (min(depth, count - at) for at in range(0, count, depth))


async def _extended(
    system: System, pds: list[PD], cq: CQ, domain: XRCD, options: QpOptions
) -> tuple[QP, QP]:
    """An XRC connection: an initiator, and a target in a domain of the second node."""
    initiator = QPInitAttr(QpType.XRC_INI, cq, cap=replace(options.cap))
    target = QPInitAttr(QpType.XRC_TGT, xrcd=domain)
    qps = await QP.create(pds[0], initiator), await QP.create(pds[1], target)
    await join(system.nodes, qps, options)
    return qps


async def _lay_out(row: Row, qp: QP, side: Side, pd: PD) -> dict[int, Mkey]:
    """By place an indirect key whose layout is the message there."""
    found = {}
    for at in row.places(side.source.length):
        found[at] = await Mkey.create(pd, row.entries)
        entries = pieces(side.source, at, row.size, row.entries)
        await qp.post_send(found[at].list_wr(entries, Access.LOCAL_WRITE))
        finished(await side.cqs[0].wait(timeout_ns=patience_ns(0)))
    return found


def _verify(row: Row, flow: Flow) -> None:
    """Every message has come, byte for byte, and nothing beside them has changed."""
    inverse = ~flow.data
    for sequence in range(flow.checked, flow.quota):
        flow.check(sequence)
    name = f"{row.name} of {row.size} bytes"
    compare(name, "the source", flow.source.read(flow.source.length), flow.data)
    got = flow.sink.read(flow.sink.length)
    for place in flow.places if row.area else ():  # what was wiped lies behind the sender's address
        message = slice(place, place + row.area + row.size)
        got[message] = inverse[message]
    compare(name, "what is outside of the messages", got, inverse)


async def _play(pair: _Pair, row: Row, rng: np.random.Generator) -> dict[str, Any]:
    """One message alone, then all the others; what the table shows of the row."""
    flow = pair.flow(row, rng.integers(0, 256, pair.sides[0].source.length, np.uint8))
    alone = await pair.batch(flow, 1)
    times = [await pair.batch(flow, count) for count in pair.batches(flow, row.count)]
    # A completion says that the peer's card has the message, but for a WRITE of UC, which is still
    # on its way; memory shows it a bit later.
    told = flow.traffic.answered or flow.traffic.sends
    await Timer(VISIBLE_NS if told else VISIBLE_NS + _WAY_NS, "ns")
    _verify(row, flow)
    return {
        "op": row.name,
        "size": row.size,
        "messages": row.count,
        "bytes_verified": row.size * row.count,
        "begin_ns": times[0][0],
        "end_ns": times[-1][1],
        "latency_ns": alone[1] - alone[0],
        "sender": int(flow.traffic.fetches),
    }


async def play(
    groups: list[list[Row]], system: System, timeout: int, scope: Scope, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """What the table shows of the rows; those of a group have the same queue pairs."""
    rng, found = np.random.default_rng(1), []
    for rows in groups:
        async with setting_up(system):
            pair = await _Pair.create(rows, system, timeout, scope)
        for row in rows:  # the hardware is alone, but where the firmware connects
            if row.dynamic:
                for node in system.nodes:
                    node.start_firmware()
            say(f"{row.name} of {row.size} bytes")
            found.append(await _play(pair, row, rng))
            system.stop_firmware()
        await close(system, pair.resources)
    return found
