"""Joins the requester and the replier in front of the gather, and sends the answers back."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require, steady
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register
from hdl.common.streams import passes
from hdl.ports.headers import TxHeader
from hdl.ports.jobs import TxChecked, TxJob, TxSource
from hdl.ports.numbers import QpNumber

__all__ = ["TxArbiter"]

#: Jobs whose answers are to come.
JOBS = 32
#: Groups of QPs, by the last bits of their number, of whose packets on the long way is counted.
GROUP_BITS = 3
#: Bits of such a count: more than the card holds between here and the line.
COUNT_BITS = 9


class TxArbiter(wiring.Component):
    """Jobs of both sides in turn when both have one; answers to the side whose job it was.

    ``job0``, ``checked0``: the requester. ``job1``, ``checked1``: the replier; jobs without payload
    (ACKs) are always good, so their answers stay here. Both have any number of jobs on their way.

    The replier's packets without payload need nothing of the gather, and must not wait for other
    packets' payload. They leave by ``answer``, which passes all that waits, unless responses of the
    same QP are on the long way: then they follow them there, as the order of a QP's responses must
    stay (IBTA vol 1, 9.7.5.1). QPs are counted in groups. ``left``: a packet of ``left_qp`` that
    was marked so (``Departure``) has left the long way; one that the gather refuses leaves it too.

    Latency: 1 cycle. Throughput: one job a cycle, of each side every other cycle: neither
    side makes more.
    Reset: idle.
    """

    def __init__(self):
        jobs, answers = stream.Signature(TxJob), stream.Signature(TxChecked)
        super().__init__(
            {
                "job0": In(jobs),
                "checked0": Out(answers),
                "job1": In(jobs),
                "checked1": Out(answers),
                "job": Out(jobs),
                "checked": In(answers),
                "answer": Out(stream.Signature(TxHeader)),
                "left": In(1),
                "left_qp": In(QpNumber),
            }
        )

    def elaborate(self, platform):
        m = Module()
        listed = data.StructLayout({"side": 1, "silent": 1, "group": GROUP_BITS})
        m.submodules.order = order = StreamFifo(shape=listed, depth=JOBS)
        stages = Register(shape=TxJob), Register(shape=TxJob)
        m.submodules.stage0, m.submodules.stage1 = stages
        wiring.connect(m, wiring.flipped(self.job0), stages[0].i)
        wiring.connect(m, wiring.flipped(self.job1), stages[1].i)
        job0, job1 = (stage.o for stage in stages)
        group = job1.payload.qp[:GROUP_BITS]
        chosen, passed, last = Signal(), Signal(), Signal()
        # Whoever has been offered to the gather stays until it is taken.
        offered, offered_side = Signal(), Signal()
        quiet = job1.payload.source == TxSource.NONE
        direct, waits1 = Signal(), Signal()
        used = self._groups(m, platform, passed & chosen, group, order)
        m.d.comb += [
            direct.eq(quiet & ~used.bit_select(group, 1) & ~(offered & offered_side)),
            waits1.eq(job1.valid & ~direct),
            self.answer.valid.eq(job1.valid & direct),
            self.answer.payload.eq(job1.payload.header),
        ]
        with m.If(offered):
            m.d.comb += chosen.eq(offered_side)
        with m.Else():
            m.d.comb += chosen.eq(waits1 & (~job0.valid | ~last))
        with m.If(direct):
            m.d.comb += job1.ready.eq(self.answer.ready)
        with m.If(chosen):
            m.d.comb += [
                self.job.payload.eq(job1.payload),
                self.job.payload.header.departure.answer.eq(1),
                self.job.payload.header.departure.qp.eq(job1.payload.qp),
                self.job.valid.eq(waits1 & order.i.ready),
                job1.ready.eq(self.job.ready & order.i.ready),
            ]
        with m.Else():
            m.d.comb += [
                self.job.payload.eq(job0.payload),
                self.job.valid.eq(job0.valid & order.i.ready),
                job0.ready.eq(self.job.ready & order.i.ready),
            ]
        m.d.comb += [
            passed.eq(self.job.valid & self.job.ready),
            order.i.valid.eq(passed),
            order.i.payload.side.eq(chosen),
            order.i.payload.silent.eq(chosen & quiet),
            order.i.payload.group.eq(group),
        ]
        m.d.sync += [
            offered.eq(self.job.valid & ~self.job.ready),
            offered_side.eq(chosen),
        ]
        with m.If(passed):
            m.d.sync += last.eq(chosen)
        self._answers(m, platform, order)
        steady(m, platform, self.job, "the job that is offered stays until it is taken")
        steady(m, platform, self.answer, "the answer that is offered stays until it is taken")
        return m

    def _answers(self, m: Module, platform, order) -> None:
        """Each answer goes to the side whose job it was."""
        answer = order.o.payload
        for number, port in enumerate((self.checked0, self.checked1)):
            mine = order.o.valid & (answer.side == number) & ~answer.silent
            m.d.comb += [
                port.payload.eq(self.checked.payload),
                port.valid.eq(self.checked.valid & mine),
            ]
            with m.If(mine & port.ready):
                m.d.comb += self.checked.ready.eq(1)
        with m.If(order.o.valid & answer.silent):
            m.d.comb += self.checked.ready.eq(1)
        m.d.comb += order.o.ready.eq(self.checked.valid & self.checked.ready)
        text = "each answer is to a job that has been handed over"
        require(m, platform, ~self.checked.valid | (order.level != 0), text)

    def _groups(self, m: Module, platform, came, group, order) -> Signal:
        """Returns for each group whether a packet of the replier's is on the long way."""
        used = Signal(1 << GROUP_BITS)
        refused, refused_group = Signal(), Signal(GROUP_BITS)
        left, left_group = Signal(), Signal(GROUP_BITS)
        answer = order.o.payload
        # A cycle late: a group is thought to be used for longer.
        m.d.sync += [
            refused.eq(passes(self.checked) & answer.side & (self.checked.payload.status != 0)),
            refused_group.eq(answer.group),
            left.eq(self.left),
            left_group.eq(self.left_qp[:GROUP_BITS]),
        ]
        for n in range(len(used)):
            count = Signal(COUNT_BITS, name=f"group{n}")
            more = came & (group == n)
            fewer = Cat(left & (left_group == n), refused & (refused_group == n))
            m.d.sync += count.eq(count + more - fewer[0] - fewer[1])
            m.d.comb += used[n].eq(count != 0)
            text = "no more packets leave the long way than took it"
            require(m, platform, count >= fewer[0] + fewer[1], text)
        return used
