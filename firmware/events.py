"""The asynchronous events of one guest function: what happens, and the event queue.

The firmware looks at one queue pair and one shared receive queue in each step, so that events cost
nothing between them. Nothing is looked at unless the driver has negotiated the extension.
Spec: docs/extensions.md, extension EVENTS; IBTA vol 1, 11.6.3 (asynchronous events).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from firmware.device import Operations
from firmware.objects import Cq, Limits, Objects, Qp, Srq
from firmware.qp_commands import QpCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import EventType, QpState

__all__ = ["Events"]

#: The only port.
PORT = 1
_MOST_LOST = (1 << 32) - 1
#: Events that may wait while those of objects do; more that are of none are lost.
_MOST_WAITING = 1024

T = TypeVar("T", Qp, Srq)


@dataclass(frozen=True)
class _Event:
    """An event that waits, and the object that it is of; None: of the port."""

    record: dict[str, int]
    made: Qp | Cq | Srq | None


class Events:
    """Reports events of a function's objects to its event queue, in order.

    ``report`` adds one; ``step`` looks for others and writes the oldest. ``wanted`` says whether
    the driver has negotiated the extension; while it has not, ``report`` and ``step`` do nothing.
    An event that finds no buffer is lost, and counted in the next one. But if the driver has
    negotiated QUEUE_ERROR (``keeps``), one of an object waits for a buffer as long as the object is
    there: who makes as many events as he can makes nobody else lose one.
    """

    def __init__(
        self, hardware: Operations, limits: Limits, objects: Callable[[], Objects], qps: QpCommands
    ):
        self._hardware, self._limits, self._objects, self._qps = hardware, limits, objects, qps
        self.wanted = self.keeps = False
        self._waiting: deque[_Event] = deque()
        self._lost = 0
        #: What the hardware is at: an event, or the SRQ whose avail index it reads.
        self._under_way: _Event | Srq | None = None
        #: ``_under_way`` is of a driver that has gone.
        self._stale = False
        self._link: bool | None = None
        self._turns = {Qp: 0, Srq: 0}
        #: ``state`` has changed; whoever keeps a journal clears it.
        self.changed = False

    def forget(self) -> None:
        """The device was reset: all that is to be told is of the past."""
        self.wanted, self.keeps, self._link, self._lost = False, False, None, 0
        self._waiting.clear()
        self.changed = True
        self._stale = self._under_way is not None

    def report(self, event: EventType, *, number: int = 0, index: int = 0, port: int = 0) -> None:
        """Adds an event. ``number``: that of its QP, CQ or SRQ; ``index``: of the table's entry."""
        if self.wanted:
            record = {"event": event, "number": number, "index": index, "port_num": port}
            made = self._object(record)
            if made is None and len(self._waiting) >= _MOST_WAITING:
                self._lost = min(self._lost + 1, _MOST_LOST)
            else:
                self._waiting.append(_Event(record, made))
            self.changed = True

    def _object(self, record: dict[str, int]) -> Qp | Cq | Srq | None:
        """The object that an event is of, as long as it is there."""
        objects, number = self._objects(), record["number"]
        match record["event"]:
            case EventType.CQ_ERR:
                return objects.cqs.find(number)
            case EventType.SRQ_ERR | EventType.SRQ_LIMIT_REACHED:
                return objects.srqs.find(number)
            case (
                EventType.QP_FATAL
                | EventType.SQ_DRAINED
                | EventType.QP_LAST_WQE_REACHED
                | EventType.DCT_KEY_VIOLATION
                | EventType.DCT_ACCESS_ERR
                | EventType.DCT_REQ_ERR
            ):
                return objects.qps.find(number % self._limits.config.qps)
        return None

    def state(self) -> dict[str, Any]:
        """What a firmware that comes after this one must know, as plain values."""
        return {
            "wanted": self.wanted,
            "keeps": self.keeps,
            "waiting": [
                {name: int(value) for name, value in one.record.items()} for one in self._waiting
            ],
            "lost": self._lost,
            "under_way": isinstance(self._under_way, _Event),
            "link": self._link,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from ``state``. An event that was under way may not have come: it is lost."""
        self.wanted, self._link = state["wanted"], state["link"]
        self.keeps = state["keeps"]
        self._waiting.extend(_Event(record, self._object(record)) for record in state["waiting"])
        self._lost = min(state["lost"] + state["under_way"], _MOST_LOST)

    async def step(self) -> None:
        """Looks at the port and at the next objects, and goes on with the event queue."""
        await self._collect()
        if not self.wanted:
            return
        await self._look_at_port()
        objects = self._objects()
        if (qp := self._next(Qp, objects.qps.all())) is not None:
            await self._look_at_qp(qp)
        if self._under_way is None:
            await self._begin(objects)

    def _next(self, kind: type[T], objects: Sequence[T]) -> T | None:
        """The object whose turn it is."""
        if not objects:
            return None
        self._turns[kind] = (self._turns[kind] + 1) % len(objects)
        return objects[self._turns[kind]]

    # The event queue ----------------------------------------------------------------------------

    async def _begin(self, objects: Objects) -> None:
        """Writes the oldest event. When there is none, looks at the next SRQ with a limit."""
        config = self._limits.config
        while self.keeps and self._waiting and self._has_gone(self._waiting[0]):
            self._waiting.popleft()
            self.changed = True
        if self._waiting:
            record = abi.EVENT.pack(self._waiting[0].record | {"lost": self._lost})
            if await self._hardware.begin_post(config.event_queue, record=record):
                self._under_way = self._waiting.popleft()
                self.changed = True
            return
        srq = self._next(Srq, [one for one in objects.srqs.all() if one.limit])
        if srq is not None:
            used = await self._used(srq)
            if await self._hardware.begin_post(config.rq_queue(srq.number), position=used):
                self._under_way = srq

    def _has_gone(self, event: _Event) -> bool:
        """Whether the object that it is of is not there any more."""
        return event.made is not None and self._object(event.record) is not event.made

    async def _collect(self) -> None:
        """Takes the result of what was begun, if it is there."""
        if self._under_way is None:
            return
        result = await self._hardware.post_result()
        if result is None:
            return
        what, self._under_way = self._under_way, None
        stale, self._stale = self._stale, False
        if stale:
            return
        if isinstance(what, Srq):
            if result.success:
                await self._compare(what, result.available)
            return
        self.changed = True
        if result.success:
            self._lost = 0
        elif self.keeps and what.made is not None and await self._takes():
            self._waiting.appendleft(what)
        else:
            self._lost = min(self._lost + 1, _MOST_LOST)

    async def _takes(self) -> bool:
        """Whether the driver has enabled the event queue: else nobody waits for events."""
        queue = self._limits.config.event_queue
        return bool((await self._hardware.read_fields("queue", queue, "enabled"))["enabled"])

    async def _used(self, srq: Srq) -> int:
        queue = self._limits.config.rq_queue(srq.number)
        return (await self._hardware.read_row("used", queue))["value"]

    async def _compare(self, srq: Srq, available: int) -> None:
        """The limit is reached when fewer requests than that are not completed; it is gone then."""
        left = (available - await self._used(srq)) % (1 << 16)
        exists = any(one is srq for one in self._objects().srqs.all())
        if exists and left < srq.limit:
            srq.limit = 0
            self._objects().srqs.touched.add(srq.number)
            self.report(EventType.SRQ_LIMIT_REACHED, number=srq.number)

    # What happens -------------------------------------------------------------------------------

    async def _look_at_port(self) -> None:
        up = await self._hardware.link_up()
        if self._link is not None and up != self._link:
            self.report(EventType.PORT_ACTIVE if up else EventType.PORT_ERR, port=PORT)
        self.changed |= up != self._link
        self._link = up

    async def _look_at_qp(self, qp: Qp) -> None:
        """Reports what has become of it, each once in a life of the QP."""
        state = await self._qps.actual_state(qp)
        if state == QpState.ERR and qp.state != QpState.ERR:
            for cq in self._completes_to(qp):
                await self._look_at_cq(cq)
            self.once(qp, EventType.QP_FATAL)
        if state == QpState.ERR and qp.holds_shared and not await self._qps.holds_wqe(qp):
            self.once(qp, EventType.QP_LAST_WQE_REACHED)
        if state == QpState.SQD and qp.notify_drained and await self._qps.drained(qp):
            qp.notify_drained = False
            self._objects().qps.touched.add(qp.number)
            self.report(EventType.SQ_DRAINED, number=qp.qpn)

    def _completes_to(self, qp: Qp) -> list[Cq]:
        """The CQs that a QP may have brought completions to; of an XRC target, those of the
        receive queues of its domain."""
        named = [one.cq for one in self._objects().srqs.all() if qp.xrcd and one.xrcd is qp.xrcd]
        return [cq for cq in (qp.send_cq, qp.recv_cq, *named) if cq is not None]

    def once(self, qp: Qp, event: EventType) -> None:
        """Reports an event of a QP, unless it has had it since it was in RESET."""
        if event not in qp.told:
            qp.told.add(event)
            self._objects().qps.touched.add(qp.number)
            self.report(event, number=qp.qpn)

    async def _look_at_cq(self, cq: Cq) -> None:
        """An overflow stops a QP, so a CQ is looked at when one of its QPs has stopped."""
        if cq.told:
            return
        row = await self._hardware.read_fields("cq", cq.number, "error")
        if row["error"]:
            self.broken_cq(cq)

    def broken_cq(self, cq: Cq) -> None:
        """Reports the error of a CQ, once."""
        if not cq.told:
            cq.told = True
            self._objects().cqs.touched.add(cq.number)
            self.report(EventType.CQ_ERR, number=cq.number)

    def broken_srq(self, srq: Srq) -> None:
        """Reports the error of an SRQ, once."""
        if not srq.told:
            srq.told = True
            self._objects().srqs.touched.add(srq.number)
            self.report(EventType.SRQ_ERR, number=srq.number)
