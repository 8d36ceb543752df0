"""Go-back-N: all is sent again from the oldest packet on that is not acknowledged."""

from amaranth.hdl import Module, Mux, Signal, Value

from hdl.abi.enums import WcStatus
from hdl.common.sums import wide_difference

from .policy import AtHand, Cause, Recovery, Verdict
from .qp_timers import TimerKind
from .segment import PSN_BLOCK, message_offset

__all__ = ["GO_BACK_N", "GoBackN"]

#: A QP with this ``rnr_retry`` waits for its peer as often as the peer asks.
RNR_FOREVER = 7


class GoBackN(Recovery):
    """The policy of IBTA vol 1, 9.7.5, 9.7.6 and 9.9.2.1.1; docs/retry.md has its table.

    A QP that has gone back takes no notice of a further loss until something new is acknowledged,
    as answers from before may still come; only its timer gets it out.
    """

    def judge(self, m: Module, loss: Value, acknowledged: Value, at: AtHand) -> Value:
        verdict, row, cfg = Signal(Verdict), at.row, at.cfg
        cause, new = loss.cause, acknowledged.new
        # With progress, even in the same packet, the counts begin anew.
        used, rnr_used = Mux(new, 0, row.retries), Mux(new, 0, row.rnr_retries)
        rnr, resumes = cause == Cause.RNR, cause == Cause.PAUSE_OVER
        known = Signal()
        with m.Switch(cause):
            with m.Case(Cause.NAK, Cause.IMPLIED):
                m.d.comb += known.eq(row.recovering | row.waiting)
            with m.Case(Cause.RNR):
                m.d.comb += known.eq(row.waiting)
        exhausted = Mux(
            rnr,
            (rnr_used == cfg.rnr_retry) & (cfg.rnr_retry != RNR_FOREVER),
            (used == cfg.retry_count) & ~resumes,
        )
        m.d.comb += [
            verdict.heeded.eq(loss.found & (new | ~known)),
            verdict.again.eq(verdict.heeded & ~exhausted),
            verdict.gives_up.eq(verdict.heeded & exhausted),
            verdict.pause.eq(rnr),
            verdict.resume.eq(resumes),
            verdict.retries.eq(used + ~(rnr | resumes)),
            verdict.rnr_retries.eq(rnr_used + (rnr & (rnr_used != RNR_FOREVER))),
            verdict.status.eq(
                Mux(rnr, WcStatus.RNR_RETRY_EXC_ERR.value, WcStatus.RETRY_EXC_ERR.value)
            ),
        ]
        return verdict

    def send_again(self, m: Module, verdict: Value, at: AtHand) -> None:
        row, timer = at.row, at.timer
        m.d.sync += [
            row.recovering.eq(1),
            row.resent.eq(1),
            row.retries.eq(verdict.retries),
            row.rnr_retries.eq(verdict.rnr_retries),
            row.waiting.eq(verdict.pause | (row.waiting & ~verdict.resume)),
            # Until the packet leaves the card again (``Departures``).
            timer.kind.eq(TimerKind.OFF),
            at.timed.eq(verdict.resume | ~row.waiting),
        ]
        with m.If(verdict.pause):
            m.d.sync += [timer.kind.eq(TimerKind.PAUSE), timer.code.eq(at.asked), at.timed.eq(1)]

    def progress(self, m: Module, at: AtHand) -> None:
        self._begin_anew(m, at.row)
        with m.If(~at.row.waiting):
            m.d.sync += [
                at.timer.kind.eq(TimerKind.ANSWER),
                at.timer.code.eq(at.cfg.timeout),
                at.timed.eq(at.cfg.timeout != 0),  # 0: it waits for ever
            ]

    def ended(self, m: Module, at: AtHand) -> None:
        self._begin_anew(m, at.row)
        m.d.sync += at.row.resent.eq(0)

    def time_of_next(self, at: AtHand) -> Value:
        return Mux(at.row.waiting, 0, at.cfg.timeout)

    def pauses(self, row: Value) -> Value:
        return row.waiting

    def asked_again(self, row: Value) -> Value:
        return row.resent

    def origin(self, m: Module, row: Value, path_mtu: Value, origin: Value) -> None:
        """The oldest packet that is not acknowledged: what is acknowledged of its WQE is left out.

        The rows come late in the cycle, so they are kept first."""
        start, sent = (Signal(24, reset_less=True) for _ in range(2))
        code = Signal(3, reset_less=True)
        m.d.sync += [
            start.eq(row.start),
            sent.eq(wide_difference(m, origin.psn, start, block=PSN_BLOCK)[:24]),
            code.eq(path_mtu),
            origin.position.eq(row.position),
            origin.offset.eq(message_offset(m, code, sent)),
            origin.psn.eq(row.psn),
        ]

    @staticmethod
    def _begin_anew(m: Module, row: Value) -> None:
        """Something new has been acknowledged: the retries so far no longer count."""
        m.d.sync += [row.recovering.eq(0), row.retries.eq(0), row.rnr_retries.eq(0)]


#: The policy of the card.
GO_BACK_N = GoBackN()
