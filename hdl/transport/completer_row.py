"""What the completer changes in a QP's row: a WQE ends, packets are acknowledged, it goes back."""

from amaranth.hdl import Mux
from amaranth.lib import data

from hdl.abi.enums import WcStatus

from .qp_timers import TimerKind
from .receive_types import FINISH_AND_FLUSH, ReceiveFlags

__all__ = ["Due", "finish", "go_back", "progress"]


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


def forget(m, s):
    """Something new has been acknowledged: the retries so far no longer count."""
    m.d.sync += [s.ack.recovering.eq(0), s.ack.retries.eq(0), s.ack.rnr_retries.eq(0)]


def progress(m, s, due):
    """A part of the oldest WQE has been acknowledged: the QP's patience begins anew."""
    forget(m, s)
    with m.If(~s.ack.waiting):
        m.d.sync += [
            s.timer.kind.eq(TimerKind.ANSWER),
            s.timer.code.eq(s.work.cfg.timeout),
            due.timer.eq(s.work.cfg.timeout != 0),  # 0: it waits for ever
        ]


def go_back(m, s, due, decision):
    """The QP goes back, now or when its peer has got the time that it asked for."""
    m.d.sync += [
        due.restart.eq(1),
        s.ack.recovering.eq(1),
        s.ack.resent.eq(1),
        s.ack.retries.eq(decision.retries),
        s.ack.rnr_retries.eq(decision.rnr_retries),
        s.ack.waiting.eq(decision.pause | (s.ack.waiting & ~decision.resume)),
        # Until the packet leaves the card again (``Departures``).
        s.timer.kind.eq(TimerKind.OFF),
        due.timer.eq(decision.resume | ~s.ack.waiting),
    ]
    with m.If(decision.pause):
        m.d.sync += [
            s.timer.kind.eq(TimerKind.PAUSE),
            s.timer.code.eq(s.work.header.syndrome[:5]),
            due.timer.eq(1),
        ]


def finish(m, s, due):
    """The row behind the oldest WQE, and what must happen next. The outstanding table starts the
    timer anew, or stops it, when it takes the WQE away."""
    forget(m, s)
    m.d.sync += [
        due.pop.eq(1),
        due.wake.eq(1),
        s.changed.eq(1),
        s.pop.qp.eq(s.work.qp),
        s.pop.timeout.eq(Mux(s.ack.waiting, 0, s.work.cfg.timeout)),
        s.ack.position.eq(s.ack.position + 1),
        s.ack.start.eq(s.facts.next_psn),
        s.ack.wakes.eq(s.ack.wakes + 1),
        s.ack.reads.eq(s.ack.reads + s.oldest.entry.data),
        s.ack.read_begun.eq(0),
        s.ack.resent.eq(0),
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
