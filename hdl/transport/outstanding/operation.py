"""What the outstanding table has at hand: an operation, its list, a walk along one."""

from amaranth.lib import data

__all__ = ["Head", "Slice", "Walk", "now_row"]


class Slice(data.Struct):
    """A list. ``watched``: some entry can finish without a packet from the peer."""

    used: 1
    watched: 1
    head: 16
    tail: 16


def now_row(qp_bits: int, entry_bits: int) -> data.StructLayout:
    """The operation at hand."""
    return data.StructLayout(
        {
            "qp": qp_bits,
            "list": Slice,
            "number": entry_bits,  # the entry that was read last
            "used": 1,  # ... is one of the list
            "stopped": 1,  # see ``Look``
            "following": 1,  # see ``Pop.look``,
            "timeout": 5,  # ``Pop.timeout``
            "idle": 1,  # and ``Pop.idle``
            "ends": 1,  # see ``Finish``,
            "ended": entry_bits,  # and the entry that is complete
            "finishes": 1,  # a cycle later: gives a poke,
            "misses": -(-entry_bits // 3),  # unless another one was the oldest (``unequal``)
            "pokes": 1,  # another one has been given, or waits
            "timed": 1,  # the timer of ``qp`` starts anew or stops,
        }
    )


class Walk(data.Struct):
    """A walk along a list: why, and the entry that it has come to."""

    failing: 1  # an entry has failed; else the whole list is dropped
    position: 16  # of the one that has failed,
    status: 8  # and how
    found: 16  # position of the entry at hand
    good: 1  # ... which has no status yet
    last: 1  # ... and is the last one


class Head(data.Struct):
    """What a list begins with from now on, one of two; the list's row is late in the cycle, so no
    choice by the state stands behind it."""

    stands: 1  # what its row says; of an empty list the free entry, which may be appended
    follows: 1  # ``behind``,
    behind: 16
    pokes: 1  # give a poke,
    watched: 1  # or give one if its row says that it is watched
    watches: 1  # it is watched from now on,
    keeps: 1  # or if its row says that it is
