"""What the completer changes in a QP's row when a WQE ends."""

from amaranth.lib import data

from hdl.abi.enums import WcStatus
from hdl.ports.activations import FINISH_AND_FLUSH, ReceiveFlags

from ..recovery.policy import AtHand

__all__ = ["Due", "at_hand", "finish", "take_away"]


class Due(data.Struct):
    """What is still to be done: the work in hand, which is a bit of its own as much is decided by
    it, and what is handed over, each as soon as its taker is ready."""

    work: 1
    look: 1  # the oldest WQE of its QP is looked at
    pending: 1
    pop: 1
    wake: 1
    restart: 1
    timer: 1


def at_hand(s, due) -> AtHand:
    """What the recovery policy sees and changes of the QP."""
    return AtHand(s.work.cfg, s.ack, s.work.header.syndrome[:5], s.timer, due.timer)


def take_away(m, s, due, recovery):
    """The outstanding table takes the oldest WQE away, and starts the timer anew, or stops it."""
    m.d.sync += [
        due.pop.eq(1),
        s.pop.qp.eq(s.work.qp),
        s.pop.timeout.eq(recovery.time_of_next(at_hand(s, due))),
        s.pop.idle.eq(s.facts.idle),
    ]


def finish(m, s, due, recovery):
    """The row behind the oldest WQE, and what must happen next."""
    recovery.ended(m, at_hand(s, due))
    m.d.sync += [
        due.wake.eq(1),
        s.changed.eq(1),
        s.ack.position.eq(s.ack.position + 1),
        s.ack.start.eq(s.facts.next_psn),
        s.ack.wake_generation.eq(s.ack.wake_generation + 1),
        s.ack.reads.eq(s.ack.reads + s.oldest.entry.data),
        s.ack.read_begun.eq(0),
        s.ack.status.eq(0),
    ]
    with m.If(s.work.finish & ~s.more):
        m.d.sync += s.poke.eq(ReceiveFlags.FINISH)  # one WQE for each poke
    m.d.sync += s.sent.eq(s.sent + 1)
    with m.If(s.status != WcStatus.SUCCESS):
        m.d.sync += [s.ack.error.eq(1), s.poke.eq(ReceiveFlags.FINISH)]
        with m.If(~s.work.ack.error):
            m.d.sync += s.poke.eq(FINISH_AND_FLUSH)
    with m.Elif(~s.facts.acknowledged):
        m.d.sync += s.ack.psn.eq(s.facts.next_psn)
