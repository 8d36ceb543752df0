"""Who may send: what keeps a QP, or a WQE of it, from being sent, each reason by its name.

Three ask. The scheduler asks before it gives a QP its turn, and before it takes a WQE that has been
fetched for it (``queue_holds``). ``FetchTurn`` asks how many READs may begin (``limit_reads``).
The requester asks when a WQE is to begin (``wqe_holds``), since the QP may have changed meanwhile.
What holds a QP also sees to it that the QP is activated again when it does not any more.
"""

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike

from hdl.ports.jobs import SendWqe
from hdl.ports.rows import QpCfg, QpState

__all__ = [
    "Holds",
    "behind_reads",
    "eligible",
    "queue_holds",
    "limit_reads",
    "repeats",
    "wqe_holds",
]

#: States in which the requester sends, and in SQD only what has begun;
SENDING = (QpState.RTS, QpState.SQD)
#: and those in which WQEs are fetched, as they are flushed in ERR.
FETCHING = (*SENDING, QpState.ERR)
#: WQEs whose number is limited that a QP sends again in a turn, at most.
MOST = 8


class Holds(NamedTuple):
    """What keeps a QP from sending, a bit for each reason; if none is set it is eligible."""

    state: Value  # the QP's state: until the firmware has changed it, which activates the QP
    pause: Value  # an RNR pause, or a WQE that was given back: until the completer's wake
    rate: Value  # its rate limiter has no credit: until that has, and activates it


def eligible(holds: Holds) -> Value:
    """Return whether nothing holds the QP."""
    return ~(holds.state | holds.pause | holds.rate)


def queue_holds(cfg: QpCfg, *, blocked: Value, spent: ValueLike = 0) -> Holds:
    """Return what holds a QP's send queue. ``blocked``: of its ``QpFetch``, unless it is woken;
    ``spent``: its rate limiter has no credit."""
    return Holds(~Value.cast(cfg.state).matches(*FETCHING), blocked, Value.cast(spent))


def wqe_holds(cfg: QpCfg, *, pauses: Value, spent: ValueLike = 0) -> Holds:
    """Return what holds a WQE that is about to be sent. ``pauses``: the recovery policy says so;
    ``spent``: as above. How a QP that has stopped flushes its WQEs is another matter."""
    return Holds(~Value.cast(cfg.state).matches(*SENDING), pauses, Value.cast(spent))


def behind_reads(wqe: SendWqe, reads: Value, most: Value) -> Value:
    """Return whether the window of READs is closed to a WQE: ``reads`` are under way, of ``most``,
    or any at all before a fence. The end of a READ wakes the QP."""
    return (wqe.operation.data & (reads >= most)) | (wqe.fence & (reads != 0))


def repeats(begun: Value) -> Value:
    """Return how many of the ``begun`` WQEs, which are to be sent again, are asked for in a turn.
    These have entries of the outstanding table already, and READs among them count already."""
    return Mux(begun[3:].any(), MOST, begun[:3])


def limit_reads(
    m: Module, startable: Signal, *, reads: Value, most: Value, unbegun: Value, begun: Value
) -> None:
    """Set the register ``startable`` to how many READs a QP may ask for.

    ``reads`` are under way, of ``most``; ``unbegun`` have been asked for and not begun, or, if that
    is negative, ``begun`` are to be sent again: these count already, whatever the limit is."""
    spare = most - unbegun[:8] - reads
    m.d.sync += startable.eq(0)
    with m.If(unbegun[15]):
        m.d.sync += startable.eq(repeats(begun))
    with m.Elif(~unbegun[8:].any() & (spare >= 0)):
        m.d.sync += startable.eq(spare)
    # Without a READ that would wake the QP one is always asked for: the requester gives back what
    # it cannot start.
    with m.If((unbegun == 0) & (reads == 0) & (most == 0)):
        m.d.sync += startable.eq(1)
