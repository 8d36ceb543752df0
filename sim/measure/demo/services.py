"""The demonstration's operations beside SEND, WRITE and READ of RC: one row of the table each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, QpType, WcStatus, WrOpcode
from hdl.abi.virtio_rdma import FIRST_USER_QP_INDEX, GRH_SIZE
from hdl.config import CardFeature
from sim.bench.system import VISIBLE_NS, System, connect
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    QP,
    SRQ,
    WC,
    AHAttr,
    FastMR,
    GlobalRoute,
    RecvWR,
    SendWR,
    SrqAttr,
)
from sim.guest.verbs.context import Resource
from sim.measure.demo.scope import Scope, close, patience_ns, setting_up

__all__ = ["left_out", "service_rows"]

_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
_QKEY = 0x11223344
#: Bytes of the place of a message, its GRH included.
_PLACE = 4096 + 64
_LOOK_NS = 20
#: Longer than a message takes from the sender's completion to the peer's memory.
_WAY_NS = 20_000
_ATOMICS = (WrOpcode.ATOMIC_FETCH_AND_ADD, WrOpcode.ATOMIC_CMP_AND_SWP)


@dataclass(frozen=True)
class Service:
    """``name`` and ``size`` of the row, and what its requests are; ``srq``: into a shared receive
    queue. ``count``: messages back to back, after one alone."""

    name: str
    size: int
    opcode: WrOpcode
    kind: QpType = QpType.RC
    srq: bool = False
    count: int = 32

    @property
    def receives(self) -> bool:
        """Whether each message takes a receive request."""
        return self.opcode in (WrOpcode.SEND, WrOpcode.SEND_WITH_INV)

    @property
    def head(self) -> int:
        """Bytes in front of what is received."""
        return GRH_SIZE if self.kind == QpType.UD else 0

    @property
    def features(self) -> set[CardFeature]:
        """What a card needs for it."""
        found = {CardFeature.SRQ} if self.srq else set()
        if self.kind != QpType.RC:
            found.add(CardFeature[self.kind.name])
        if self.opcode in _ATOMICS:
            found.add(CardFeature.ATOMICS)
        if self.opcode == WrOpcode.SEND_WITH_INV:
            found.add(CardFeature.FAST_REGISTRATION)
        return found

    def lacks(self, scope: Scope) -> str:
        """Why a card cannot do it; empty if it can."""
        card = scope.card
        if missing := sorted(one.value for one in self.features - card.features):
            return f"no {', '.join(missing)}"
        keys = self.count + 1 if self.opcode == WrOpcode.SEND_WITH_INV else 0
        for name, needed in (
            ("mtu", self.size if self.kind == QpType.UD else 0),
            ("qps", FIRST_USER_QP_INDEX + 1 + self.srq),
            ("mrs", 1 + keys),
        ):
            if getattr(card, name) < needed:
                return f"{name} below {needed}"
        return ""


SERVICES = (
    Service("FETCH_ADD", 8, WrOpcode.ATOMIC_FETCH_AND_ADD),
    Service("CMP_SWAP", 8, WrOpcode.ATOMIC_CMP_AND_SWP),
    Service("SEND_INV", 64, WrOpcode.SEND_WITH_INV, count=4),
    Service("SEND, SRQ", 64, WrOpcode.SEND, srq=True),
    Service("UC SEND", 4096, WrOpcode.SEND, QpType.UC),
    Service("UC WRITE", 4096, WrOpcode.RDMA_WRITE, QpType.UC),
    Service("UD SEND", 64, WrOpcode.SEND, QpType.UD),
    Service("UD SEND", 4096, WrOpcode.SEND, QpType.UD),
)


@dataclass
class _Lane:
    """Two queue pairs of a service and their regions; message ``n`` has place ``n`` of both.

    ``keys``: of regions at the receiver, which message ``n`` invalidates. ``depth``: messages that
    are outstanding at most. ``resources``: all of its objects, in the order in which they close.
    """

    service: Service
    qps: tuple[QP, QP]
    cqs: list[CQ]
    mrs: list[MR]
    srq: SRQ | None
    ah: AH
    keys: list[int]
    depth: int
    resources: list[Resource]

    @classmethod
    async def create(cls, service: Service, system: System, timeout: int, scope: Scope) -> _Lane:
        """Both ends in RTS, with keys to invalidate where the service does that."""
        nodes, total, depth = system.nodes, service.count + 1, scope.depth
        pds = [await n.context.alloc_pd() for n in nodes]
        cqs = [await CQ.create(n.context, scope.completions) for n in nodes]
        mrs = [await MR.create(pd, total * _PLACE, _RIGHTS) for pd in pds]
        srq = await SRQ.create(pds[1], SrqAttr(max_wr=depth)) if service.srq else None
        options = scope.options(timeout, kind=service.kind, access=_RIGHTS, qkey=_QKEY)
        qps = await connect(nodes, pds, cqs, options, (None, srq))
        route = GlobalRoute(dgid=nodes[1].context.query_gid(1, 0))
        ah = AH(pds[0], AHAttr(gr=route, roce_dmac=nodes[1].mac))
        regions = []
        if service.opcode == WrOpcode.SEND_WITH_INV:
            for _ in range(total):
                region = await FastMR.create(pds[1], 1, _RIGHTS)
                await region.map(64)
                regions.append(region)
                await qps[1].post_send(region.reg_wr(_RIGHTS))
                _all_good(await cqs[1].wait(timeout_ns=patience_ns(0)))
        keys = [region.key for region in regions]
        resources = [*qps, *([srq] if srq else []), *regions, *mrs, *cqs, *pds]
        return cls(service, qps, cqs, mrs, srq, ah, keys, depth, resources)

    def _request(self, number: int) -> SendWR:
        service, remote = self.service, self.mrs[1]
        sge = self.mrs[0].sge(number * _PLACE, service.size)
        request = SendWR(number, service.opcode, [sge])
        if service.kind == QpType.UD:
            request.set_wr_ud(self.ah, self.qps[1].qp_num, _QKEY)
        elif service.opcode in _ATOMICS:  # each adds one to the same word
            swaps = service.opcode == WrOpcode.ATOMIC_CMP_AND_SWP
            operands = (number, number + 1) if swaps else (1, 0)
            request.set_wr_atomic(remote.rkey, remote.iova, *operands)
        elif service.opcode == WrOpcode.SEND_WITH_INV:
            request.invalidate_rkey = self.keys[number]
        elif not service.receives:
            request.set_wr_rdma(remote.rkey, remote.iova + number * _PLACE)
        return request

    async def run(self, first: int, count: int) -> tuple[int, int]:
        """Messages back to back, as many as the queues hold; simulated time of the first post and
        the last completion."""
        times = [
            await self._post(at, min(self.depth, first + count - at))
            for at in range(first, first + count, self.depth)
        ]
        return times[0][0], times[-1][1]

    async def _post(self, first: int, count: int) -> tuple[int, int]:
        now = self.cqs[0].ctx.device.platform.now
        size = self.service.head + self.service.size
        begin, numbers = now(), range(first, first + count)
        patience = patience_ns(count * size)
        if self.service.receives:
            slots = [RecvWR(n, [self.mrs[1].sge(n * _PLACE, size)]) for n in numbers]
            await (self.srq or self.qps[1]).post_recv(slots)
            begin = now()
        await self.qps[0].post_send([self._request(n) for n in numbers])
        found: list[WC] = []
        while len(found) < count:
            if now() - begin > patience:
                raise AssertionError(f"{self.service.name}: {len(found)} of {count} completions")
            await Timer(_LOOK_NS, "ns")
            found += await self.cqs[0].poll(count)
        end = now()
        if self.service.receives:
            found += await self.cqs[1].wait(count, timeout_ns=patience)
        _all_good(found)
        return begin, end

    def verify(self, data: Any) -> None:
        """What all messages have left; ``data``: what the sender's region had."""
        service = self.service
        for number in range(service.count + 1):
            if service.opcode in _ATOMICS:
                found, wanted = self.mrs[0].read(8, number * _PLACE), number.to_bytes(8, "little")
            else:
                place = number * _PLACE
                found = self.mrs[1].read(service.size, place + service.head)
                wanted = data[place : place + service.size].tobytes()
            if found.tobytes() != wanted:
                raise AssertionError(f"{service.name}: message {number} differs")
        if service.opcode in _ATOMICS:
            word = int.from_bytes(self.mrs[1].read(8).tobytes(), "little")
            if word != service.count + 1:
                raise AssertionError(f"{service.name}: the word is {word}")


def _all_good(found: list[WC]) -> None:
    bad = [wc for wc in found if wc.status != WcStatus.SUCCESS]
    if bad:
        raise AssertionError(f"{len(bad)} of {len(found)} completions in error, first {bad[0]}")


def left_out(scope: Scope) -> list[dict[str, Any]]:
    """The services that a card cannot have, and why."""
    return [
        {"op": service.name, "size": service.size, "why": why}
        for service in SERVICES
        if (why := service.lacks(scope))
    ]


async def service_rows(
    system: System, timeout: int, scope: Scope, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """What the table shows of the services that the cards have."""
    rng, rows = np.random.default_rng(3), []
    for service in SERVICES:
        if service.lacks(scope):
            continue
        say(f"{service.name} of {service.size} bytes")
        async with setting_up(system):
            lane = await _Lane.create(service, system, timeout, scope)
        data = rng.integers(0, 256, lane.mrs[0].length, np.uint8)
        lane.mrs[0].write(data)
        alone = await lane.run(0, 1)
        begin, end = await lane.run(1, service.count)
        # A completion says that the peer's card has the message, but for a WRITE of UC, which is
        # still on its way; memory shows it a bit later.
        told = service.kind == QpType.RC or service.receives
        await Timer(VISIBLE_NS if told else VISIBLE_NS + _WAY_NS, "ns")
        lane.verify(data)
        await close(system, lane.resources)
        rows.append(
            {
                "op": service.name,
                "size": service.size,
                "messages": service.count,
                "bytes_verified": service.size * service.count,
                "begin_ns": begin,
                "end_ns": end,
                "latency_ns": alone[1] - alone[0],
                "sender": int(service.opcode in _ATOMICS),
            }
        )
    return rows
