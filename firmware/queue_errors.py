"""Virtqueues that the card has found broken: what becomes of the objects that use them.

The card shows one virtqueue at a time, and goes on showing it until the firmware has seen to it. So
the firmware takes one queue pair to ERR in each step, however many there are, and serves requests
between them. A firmware that comes after this one begins with the same virtqueue again.
Spec: docs/extensions.md, extension QUEUE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable

from firmware.events import Events
from firmware.objects import Limits, Objects, Qp
from firmware.qp_commands import QpCommands
from hdl.abi.enums import EventType, QpState

__all__ = ["QueueErrors"]

#: States in which nothing of a QP is under way, or all of it is being flushed.
_AT_REST = (QpState.RESET, QpState.ERR)


class QueueErrors:
    """Sees to the broken virtqueues of one guest function.

    A broken send or receive queue takes its QP to ERR, a broken CQ or SRQ all QPs that use it. The
    event of the CQ or SRQ comes before those of the QPs.
    """

    def __init__(
        self, limits: Limits, objects: Callable[[], Objects], qps: QpCommands, events: Events
    ):
        self._limits, self._objects, self._qps, self._events = limits, objects, qps, events

    async def step(self, queue: int) -> bool:
        """Takes the next QP that virtqueue ``queue`` of the function concerns to ERR; whether there
        was one."""
        for qp in self._concerned(queue):
            if qp.state not in _AT_REST:
                await self._qps.fail(qp)
                self._events.once(qp, EventType.QP_FATAL)
                return True
        return False

    def _concerned(self, queue: int) -> list[Qp]:
        """The QPs that use a virtqueue; the event of the CQ or SRQ that has it is reported."""
        config, objects = self._limits.config, self._objects()
        if queue < config.sq_queue(0):
            cq = objects.cqs.find(queue - config.cq_queue(0))
            if cq is None:
                return []
            self._events.broken_cq(cq)
            return [qp for qp in objects.qps.all() if cq is qp.send_cq or cq is qp.recv_cq]
        pair, receives = divmod(queue - config.sq_queue(0), 2)
        srq = objects.srqs.find(pair)
        if srq is not None:
            self._events.broken_srq(srq)
            return [qp for qp in objects.qps.all() if qp.srq is srq]
        own = objects.qps.find(pair)
        return [] if own is None or (receives and own.srq is not None) else [own]
