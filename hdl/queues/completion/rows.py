"""The rows of CqBuffers: completions on their way to the buffers of their CQEs."""

from amaranth.lib import data

from hdl.ports.jobs import Completion, QueueErrorCause
from hdl.ports.numbers import CqNumber
from hdl.ports.rows import RingRules

from ..ring.types import UsedRing

__all__ = ["Check", "CheckVerdict", "CompletionJob", "CqRing", "Found", "Kind", "Ring", "Waiting"]


class CqRing(data.Struct):
    """What returning a buffer to a CQ needs: no ``driver``, its interrupts go by what is armed."""

    queue: 16
    size_log2: 4
    rules: RingRules
    device: 64
    vector: 16


class CompletionJob(data.Struct):
    """A completion and where it goes; it comes straight from a block RAM, but for what is named
    first, and is for a register.

    ``arms``: it is a request to arm a CQ, whose ring is ``wqe_ring`` (Arming).
    ``emit``: as in the completion. ``ring``: the WQE's buffer goes back to ``wqe_ring``.
    ``write``: a CQE goes to the chain ``head`` of ``cq_ring``: to ``addr``, or with ``odd`` to the
    segments that a Walker delivers.
    Neither, with ``emit``: the CQE is ``lost``; ``cause``, if any, is what is wrong with the CQ's
    ring."""

    arms: 1
    emit: 1
    ring: 1
    completion: Completion
    wqe_ring: UsedRing
    write: 1
    lost: 1
    cause: QueueErrorCause
    cq_ring: CqRing
    head: 16
    odd: 1
    addr: 64


class Waiting(data.Struct):
    """What a completion needs when its buffer is known."""

    completion: Completion
    wqe_ring: UsedRing
    cq_ring: CqRing


class Kind(data.Struct):
    """What is decided by at once, beside a Waiting, which is late. ``queue``: of the WQE.
    ``at_hand``: the buffer is there already."""

    arms: 1
    emit: 1
    at_hand: 1
    ring: 1
    queue: 16


class Check(data.Struct):
    """Is ``position`` of a CQ available? With ``poll`` the avail index has been asked for, else it
    was ``known`` as long as the CQ is not in error. ``disabled``: the queue is. ``at_hand``: its
    buffer need not be looked up."""

    cq: CqNumber
    position: 16
    known: 16
    poll: 1
    disabled: 1
    at_hand: 1
    size_log2: 4
    rules: RingRules


class Ring(data.Struct):
    """Where the ring of a Check lies."""

    function: 8
    desc: 64
    driver: 64


class CheckVerdict(data.Struct):
    """What a Check has come to: with ``lost``, why, if the ring is broken."""

    lost: 1
    cause: QueueErrorCause


class Found(data.Struct):
    """A buffer; ``failed``: its ring entry could not be read."""

    head: 16
    addr: 64
    odd: 1
    failed: 1
