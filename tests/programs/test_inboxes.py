"""Whom an asynchronous event is for."""

from __future__ import annotations

from hdl.abi.enums import EventType
from sim.guest.verbs import AsyncEvent
from sim.programs.inboxes import Inboxes


class Context:
    """Somebody who may hear of events."""


def told(inboxes: Inboxes, context: object) -> list[EventType]:
    return [event.event for event in inboxes.waiting(context)]


def test_events_go_to_the_owner_of_their_object() -> None:
    inboxes, a, b = Inboxes(), Context(), Context()
    for context in (a, b):
        inboxes.open(context)
    inboxes.made("qp", 5, a)
    inboxes.made("cq", 5, b)
    for kind in (EventType.QP_FATAL, EventType.CQ_ERR, EventType.PORT_ERR):
        inboxes.put(AsyncEvent(kind, 5))
    inboxes.put(AsyncEvent(EventType.QP_FATAL, 6))  # nobody's
    assert told(inboxes, a) == [EventType.QP_FATAL, EventType.PORT_ERR]
    assert told(inboxes, b) == [EventType.CQ_ERR, EventType.PORT_ERR]


def test_events_go_with_their_object_and_their_context() -> None:
    inboxes, a = Inboxes(), Context()
    inboxes.open(a)
    inboxes.made("srq", 1, a)
    inboxes.put(AsyncEvent(EventType.SRQ_LIMIT_REACHED, 1))
    inboxes.put(AsyncEvent(EventType.GID_CHANGE))
    inboxes.gone("srq", 1)
    inboxes.gone("srq", 1)
    inboxes.put(AsyncEvent(EventType.SRQ_LIMIT_REACHED, 1))
    assert told(inboxes, a) == [EventType.GID_CHANGE]
    inboxes.close(a)
    inboxes.put(AsyncEvent(EventType.GID_CHANGE))
    assert told(inboxes, a) == []
