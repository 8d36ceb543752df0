"""Asynchronous events of a device, for the context whose object each is about."""

from __future__ import annotations

from collections import deque
from weakref import WeakKeyDictionary, WeakValueDictionary

from hdl.abi.enums import EventType
from sim.guest.verbs.event import AsyncEvent

__all__ = ["Inboxes"]

#: What an event is about; all others are about the device, and so for each context.
#: Events that libibverbs has no name for.
_UNKNOWN = (EventType.DCT_KEY_VIOLATION, EventType.DCT_ACCESS_ERR, EventType.DCT_REQ_ERR)
_KINDS = {
    EventType.CQ_ERR: "cq",
    EventType.QP_FATAL: "qp",
    EventType.SQ_DRAINED: "qp",
    EventType.QP_LAST_WQE_REACHED: "qp",
    EventType.SRQ_ERR: "srq",
    EventType.SRQ_LIMIT_REACHED: "srq",
}


class Inboxes:
    """What the contexts of a program have not read yet. An object that goes takes its events along.

    Kinds of objects are qp, cq and srq; each has a number.
    """

    def __init__(self) -> None:
        self._boxes: WeakKeyDictionary[object, deque[AsyncEvent]] = WeakKeyDictionary()
        self._owners: WeakValueDictionary[tuple[str, int], object] = WeakValueDictionary()

    def open(self, context: object) -> None:
        """A context hears of its objects, and of the device."""
        self._boxes[context] = deque()

    def close(self, context: object) -> None:
        """It hears nothing more."""
        self._boxes.pop(context, None)

    def made(self, kind: str, number: int, context: object) -> None:
        """A context has made an object."""
        self._owners[kind, number] = context

    def gone(self, kind: str, number: int) -> None:
        """An object is there no more."""
        owner = self._owners.pop((kind, number), None)
        box = deque[AsyncEvent]() if owner is None else self.waiting(owner)
        for event in [one for one in box if _about(one) == (kind, number)]:
            box.remove(event)

    def put(self, event: AsyncEvent) -> None:
        """The device has told of something."""
        if event.event in _UNKNOWN:
            return
        about = _about(event)
        for context, box in list(self._boxes.items()):
            if about is None or self._owners.get(about) is context:
                box.append(event)

    def waiting(self, context: object) -> deque[AsyncEvent]:
        """What a context has not read."""
        return self._boxes.get(context, deque())


def _about(event: AsyncEvent) -> tuple[str, int] | None:
    kind = _KINDS.get(event.event)
    return None if kind is None else (kind, event.number)
