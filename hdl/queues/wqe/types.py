"""Rows on the way from an element to a WQE in its line."""

from amaranth.lib import data

from hdl.ports.jobs import WQE_LINE_BITS, Destination, FetchRequest, SendWqe
from hdl.ports.rows import RingRules

__all__ = ["Verdict", "Word", "WqeJob"]


class Word(data.Struct):
    """Eight bytes of an element, all valid unless ``last``; then ``count`` (0 to 8) of them are,
    the others are zero."""

    data: 64
    count: 4
    last: 1


class WqeJob(data.Struct):
    """What is left of a FastPathJob when its WQE has come."""

    request: FetchRequest
    line: WQE_LINE_BITS
    size_log2: 4
    rules: RingRules
    desc: 64


class Verdict(data.Struct):
    """A WQE for which nothing is left to do, its slots in ``line``; with ``odd`` the chain at
    ``head`` is for the slow path (unless ``failed``), and ``line`` is for it."""

    head: 16
    failed: 1
    odd: 1
    line: WQE_LINE_BITS
    wqe: SendWqe
    destination: Destination
