"""Joins the requester and the replier in front of the gather, and sends the answers back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.skid import Skid
from hdl.ports.jobs import TxChecked, TxJob

__all__ = ["TxArbiter"]


class TxArbiter(wiring.Component):
    """One job at a time: the side whose job was passed on gets the next answer; then it is the
    other side's turn if it has a job.

    Latency: 1 cycle each way. Throughput: one job and its answer at a time (the gather answers in
    order and works ahead of its own data). Reset: idle.
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
        m.submodules.output = output = Skid(shape=TxJob)
        wiring.connect(m, output.o, wiring.flipped(self.job))
        side, busy = Signal(), Signal()
        chosen = Signal()
        with m.If(side):
            m.d.comb += chosen.eq(~self.job0.valid)
        with m.Else():
            m.d.comb += chosen.eq(self.job1.valid)
        for number, port in enumerate((self.job0, self.job1)):
            with m.If(~busy & (chosen == number)):
                m.d.comb += [
                    output.i.payload.eq(port.payload),
                    output.i.valid.eq(port.valid),
                    port.ready.eq(output.i.ready),
                ]
        with m.If(output.i.valid & output.i.ready):
            m.d.sync += [busy.eq(1), side.eq(chosen)]
        for number, port in enumerate((self.checked0, self.checked1)):
            m.d.comb += [
                port.payload.eq(self.checked.payload),
                port.valid.eq(self.checked.valid & (side == number)),
            ]
            with m.If(side == number):
                m.d.comb += self.checked.ready.eq(port.ready)
        with m.If(self.checked.valid & self.checked.ready):
            m.d.sync += busy.eq(0)
        return m
