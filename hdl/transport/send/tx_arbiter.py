"""Joins the requester and the replier in front of the gather, and sends the answers back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require, steady
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.common.skid import Register
from hdl.ports.headers import TxHeader
from hdl.ports.jobs import TxChecked, TxJob, TxSource

__all__ = ["TxArbiter"]

#: Jobs whose answers are to come.
JOBS = 32
#: Bits of a packet's number on the long way: of more packets than are twice on it.
NUMBER_BITS = 10


class TxArbiter(wiring.Component):
    """Jobs of both sides in turn when both have one; answers to the side whose job it was.

    ``job0``, ``checked0``: the requester. ``job1``, ``checked1``: the replier; jobs without payload
    (ACKs) are always good, so their answers stay here. Both have any number of jobs on their way.

    The replier's packets without payload need nothing of the gather, and must not wait for other
    packets' payload. They leave by ``answer``, which passes all that waits, unless responses of the
    same QP are on the long way: then they follow them there, as the order of a QP's responses must
    stay (IBTA vol 1, 9.7.5.1). The replier's packets on the long way are numbered, and the number
    of each QP's newest is kept. ``left``: the one with ``left_number`` has left the card, and so
    have all before it that the gather has not refused. A QP that has had none for half of the
    numbers may seem to have one; its next packet takes the long way then, which is never wrong.

    Latency: 1 cycle, of an answer 4 while others are on the long way. Throughput: one job a cycle,
    of each side every other cycle: neither side makes more; such an answer in 5 cycles.
    Reset: idle.
    """

    def __init__(self, *, qps: int):
        self._qps = qps
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
                "left_number": In(NUMBER_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        listed = data.StructLayout({"side": 1, "silent": 1})
        m.submodules.order = order = StreamFifo(shape=listed, depth=JOBS)
        stages = Register(shape=TxJob), Register(shape=TxJob)
        m.submodules.stage0, m.submodules.stage1 = stages
        wiring.connect(m, wiring.flipped(self.job0), stages[0].i)
        wiring.connect(m, wiring.flipped(self.job1), stages[1].i)
        job0, job1 = (stage.o for stage in stages)
        chosen, passed, last = Signal(), Signal(), Signal()
        # Whoever has been offered to the gather stays until it is taken.
        offered, offered_side = Signal(), Signal()
        quiet = job1.payload.source == TxSource.NONE
        direct, waits1, shown = Signal(), Signal(), Signal()  # ``shown``: as an answer
        number, passes, follows = self._long_way(m, job1, passed & chosen)
        m.d.comb += [
            direct.eq(shown | (quiet & passes & ~(offered & offered_side))),
            waits1.eq(job1.valid & (~quiet | follows | (offered & offered_side)) & ~shown),
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
                self.job.payload.header.departure.psn.eq(number),
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
        ]
        m.d.sync += [
            offered.eq(self.job.valid & ~self.job.ready),
            offered_side.eq(chosen),
            shown.eq(self.answer.valid & ~self.answer.ready),
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

    def _long_way(self, m: Module, job, goes) -> tuple[Signal, Signal, Signal]:
        """Returns the number of the next packet on the long way, and whether it is known of the
        replier's job that none of its QP is on it, or that one may be."""
        m.submodules.newest = newest = Ram(shape=NUMBER_BITS, depth=self._qps, forward=False)
        given, gone, number = (Signal(NUMBER_BITS) for _ in range(3))
        looks, looked = Signal(), Signal(3)
        row = Signal(NUMBER_BITS, reset_less=True)
        empty, ahead, passes, follows = (Signal() for _ in range(4))
        m.d.comb += [
            number.eq(given + 1),
            newest.read0.index.eq(job.payload.qp),
            newest.read0.enable.eq(1),
            newest.write.index.eq(job.payload.qp),
            newest.write.row.eq(number),
            newest.write.enable.eq(goes),
            # Of the job at hand: not in the cycle in which another one takes its place.
            looks.eq(job.valid & ~job.ready),
            passes.eq(empty | (looked[2] & ~ahead)),
            follows.eq(~empty & looked[2] & ahead),
        ]
        m.d.sync += [
            looked.eq(Mux(looks, looked << 1 | 1, 0)),
            row.eq(newest.read0.row),
            ahead.eq((gone - row)[-1]),
            empty.eq((gone == given) & ~goes),
        ]
        with m.If(goes):
            m.d.sync += given.eq(number)
        with m.If(self.left):
            m.d.sync += gone.eq(self.left_number)
        return number, passes, follows
