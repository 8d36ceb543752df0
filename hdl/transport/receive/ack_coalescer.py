"""ACKs that are left out because a later packet of the same QP is about to be answered."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require
from hdl.ports.numbers import QpNumber

__all__ = ["RUN", "AckCoalescer"]

#: ACKs that are left out in a row, at most: the next one goes out. Each costs the completer at the
#: other end four cycles beyond those of its WQEs.
RUN = 7


class AckCoalescer(wiring.Component):
    """Watches a queue of packets and tells whether the ACK of its oldest one may be left out.

    It may if the next packet in the queue that is answered with an ACK or a NAK is of the same QP:
    that answer acknowledges both. So an ACK is held back only while there is load, never longer
    than the packets in the queue take, and at most ``RUN`` of them in a row.
    Spec: IBTA vol 1, 9.7.5.1.2 (coalesced acknowledge messages).

    Parameters: ``depth``: places of the queue, a power of two; a packet stays in
    it for two cycles and more.
    Members: ``pushed``: a packet of ``pushed_qp`` enters the queue, ``pushed_answers``: it will be
    answered with an ACK or a NAK unless its QP fails before; ``popped``: the oldest one leaves it;
    ``covered``: the ACK of the oldest one may be left out; ``skip``: it is; ``answer``: a packet is
    answered now; ``qp`` of the oldest packet, ``ack_pending``: an ACK of that QP was left out.
    Latency: ``covered`` tells of a packet two cycles after it entered. Throughput: one packet a
    cycle in and out. Errors: none. Reset: the queue is empty, no ACK is pending.
    """

    def __init__(self, *, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"Depth must be a power of two, at least 2 packets, not {depth!r}")
        self._depth = depth
        super().__init__(
            {
                "pushed": In(1),
                "pushed_qp": In(QpNumber),
                "pushed_answers": In(1),
                "popped": In(1),
                "qp": In(QpNumber),
                "covered": Out(1),
                "skip": In(1),
                "answer": In(1),
                "ack_pending": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index = ceil_log2(self._depth)
        write, read = Signal(index), Signal(index)
        # The newest packet that will be answered, as long as its place is its own.
        known, newest, newest_qp = Signal(), Signal(index), Signal(QpNumber)
        followed = Signal(self._depth)  # by place: the next one that is answered is of the same QP
        # What enters is known late in its cycle, and is not needed before the next but one.
        pushed, qp, answers = Signal(), Signal(QpNumber, reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            pushed.eq(self.pushed),
            qp.eq(self.pushed_qp),
            answers.eq(self.pushed_answers),
        ]
        same = known & answers & (newest_qp == qp)
        with m.If(pushed):
            m.d.sync += write.eq(write + 1)
            for place in range(self._depth):
                with m.If(write == place):
                    m.d.sync += followed[place].eq(0)
                with m.Elif(same & (newest == place)):
                    m.d.sync += followed[place].eq(1)
            with m.If(answers):
                m.d.sync += [known.eq(1), newest.eq(write), newest_qp.eq(qp)]
            with m.Elif(write == newest):
                m.d.sync += known.eq(0)
        with m.If(self.popped):
            m.d.sync += read.eq(read + 1)

        run, debtor = Signal(range(RUN + 1)), Signal(QpNumber)
        with m.If(self.skip):
            m.d.sync += [run.eq(run + 1), debtor.eq(self.qp)]
        with m.Elif(self.answer):
            m.d.sync += run.eq(0)
        m.d.comb += [
            self.ack_pending.eq((run != 0) & (debtor == self.qp)),
            self.covered.eq(followed.bit_select(read, 1) & (run != RUN)),
        ]
        require(m, platform, ~self.skip | self.covered, "no ACK is left out but a covered one")
        require(m, platform, ~(self.skip & self.answer), "a packet is answered or left out")
        return m
