"""A second recovery policy: whole messages are sent again. No card has it; docs/recipes.md names
it as the pattern."""

from amaranth.hdl import Module, Signal, Value

from hdl.common.sums import unequal
from hdl.transport.recovery.go_back_n import GoBackN
from hdl.transport.recovery.policy import AtHand, Cause, Verdict

__all__ = ["WHOLE_MESSAGES", "WholeMessages"]


class WholeMessages(GoBackN):
    """The QP sends again from the beginning of the oldest message that has not ended.

    What a peer acknowledges of that message counts for nothing: it may be sent ``retry_count``
    times more, however far it gets.
    """

    def judge(self, m: Module, loss: Value, acknowledged: Value, at: AtHand) -> Value:
        go_back, verdict = super().judge(m, loss, acknowledged, at), Signal(Verdict)
        m.d.comb += verdict.eq(go_back)
        counts = Value.cast(loss.cause).matches(Cause.NAK, Cause.IMPLIED, Cause.TIMEOUT)
        left = unequal(at.row.retries, at.cfg.retry_count).any()
        with m.If(counts):
            m.d.comb += [
                verdict.again.eq(go_back.heeded & left),
                verdict.gives_up.eq(go_back.heeded & ~left),
                verdict.retries.eq(at.row.retries + 1),
            ]
        return verdict

    def progress(self, m: Module, at: AtHand) -> None:
        super().progress(m, at)
        m.d.sync += at.row.retries.eq(at.row.retries)

    def origin(self, m: Module, row: Value, path_mtu: Value, origin: Value) -> None:
        m.d.sync += [
            origin.position.eq(row.position),
            origin.offset.eq(0),
            origin.psn.eq(row.start),
        ]


WHOLE_MESSAGES = WholeMessages()
