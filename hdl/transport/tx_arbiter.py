"""Joins the requester and the replier in front of the gather, and sends the answers back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register
from hdl.ports.jobs import TxChecked, TxJob, TxSource

__all__ = ["TxArbiter"]

#: Jobs whose answers are to come.
JOBS = 32
#: Cycles after a READ response's answer in which the next one of them is expected.
GRACE = 8


class TxArbiter(wiring.Component):
    """Jobs of both sides in turn when both have one; answers to the side whose job it was.

    ``job0``, ``checked0``: the requester, with any number of jobs on their way. ``job1``,
    ``checked1``: the replier, one at a time; jobs without payload (ACKs) are always good, so their
    answers stay here. While the replier waits for an answer, and ``GRACE`` cycles longer, the
    requester has one job passed on for each of the replier's: READ responses and requests share the
    wire evenly although only one side works ahead.

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
            }
        )

    def elaborate(self, platform):
        m = Module()
        whose = data.StructLayout({"side": 1, "silent": 1})
        m.submodules.order = order = StreamFifo(shape=whose, depth=JOBS)
        stages = Register(shape=TxJob), Register(shape=TxJob)
        m.submodules.stage0, m.submodules.stage1 = stages
        wiring.connect(m, wiring.flipped(self.job0), stages[0].i)
        wiring.connect(m, wiring.flipped(self.job1), stages[1].i)
        job0, job1 = (stage.o for stage in stages)
        reading = Signal()  # an answer to the replier is to come
        grace, graced = Signal(range(GRACE + 1)), Signal()  # graced: it is not 0
        spent = Signal()  # the requester has had its job since the replier's last
        chosen, passed, last = Signal(), Signal(), Signal()
        held = (reading | graced) & spent
        choose = job1.valid & (~job0.valid | ~last | held)
        # Whoever has been offered to the gather stays until it is taken.
        offered, offered_side = Signal(), Signal()
        with m.If(offered):
            m.d.comb += chosen.eq(offered_side)
        with m.Else():
            m.d.comb += chosen.eq(choose)
        silent = chosen & (job1.payload.source == TxSource.NONE)
        may0 = offered | ~held
        with m.If(chosen):
            m.d.comb += [
                self.job.payload.eq(job1.payload),
                self.job.valid.eq(job1.valid & order.i.ready),
                job1.ready.eq(self.job.ready & order.i.ready),
            ]
        with m.Else():
            m.d.comb += [
                self.job.payload.eq(job0.payload),
                self.job.valid.eq(job0.valid & order.i.ready & may0),
                job0.ready.eq(self.job.ready & order.i.ready & may0),
            ]
        m.d.comb += [
            passed.eq(self.job.valid & self.job.ready),
            order.i.valid.eq(passed),
            order.i.payload.side.eq(chosen),
            order.i.payload.silent.eq(silent),
        ]
        m.d.sync += [
            offered.eq(self.job.valid & ~self.job.ready),
            offered_side.eq(chosen),
        ]
        with m.If(passed):
            m.d.sync += [last.eq(chosen), spent.eq(~chosen)]

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

        with m.If(graced):
            m.d.sync += [grace.eq(grace - 1), graced.eq(grace != 1)]
        with m.If(self.checked1.valid & self.checked1.ready):
            m.d.sync += [reading.eq(0), grace.eq(GRACE), graced.eq(1)]
        with m.If(passed & chosen & ~silent):
            m.d.sync += reading.eq(1)
        return m
