"""Joins the requester and the replier in front of the gather, and sends the answers back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require, steady
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register
from hdl.ports.jobs import TxChecked, TxJob, TxSource

__all__ = ["TxArbiter"]

#: Jobs whose answers are to come.
JOBS = 32


class TxArbiter(wiring.Component):
    """Jobs of both sides in turn when both have one; answers to the side whose job it was.

    ``job0``, ``checked0``: the requester. ``job1``, ``checked1``: the replier; jobs without payload
    (ACKs) are always good, so their answers stay here. Both have any number of jobs on their way.

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
        chosen, passed, last = Signal(), Signal(), Signal()
        choose = job1.valid & (~job0.valid | ~last)
        # Whoever has been offered to the gather stays until it is taken.
        offered, offered_side = Signal(), Signal()
        with m.If(offered):
            m.d.comb += chosen.eq(offered_side)
        with m.Else():
            m.d.comb += chosen.eq(choose)
        silent = chosen & (job1.payload.source == TxSource.NONE)
        with m.If(chosen):
            m.d.comb += [
                self.job.payload.eq(job1.payload),
                self.job.valid.eq(job1.valid & order.i.ready),
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
            order.i.payload.silent.eq(silent),
        ]
        m.d.sync += [
            offered.eq(self.job.valid & ~self.job.ready),
            offered_side.eq(chosen),
        ]
        with m.If(passed):
            m.d.sync += last.eq(chosen)

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
        steady(m, platform, self.job, "the job that is offered stays until it is taken")
        return m
