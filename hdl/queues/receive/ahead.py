"""Receive queues that may have something to fetch ahead, and how far they reach."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.activation import ActivationList, activation_layout
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import Activation
from hdl.ports.numbers import QpNumber

from ..ring.polls import PollJob, Polls

__all__ = ["DOORBELL", "MORE", "POLLED", "AheadSources"]

#: Why a queue is given out: it was notified; ``more``; its avail index was read (and comes along).
DOORBELL, MORE, POLLED = 1, 2, 8


class AheadSources(wiring.Component):
    """A list of QPs whose receive queues are to be looked at, each at most once, in turn.

    Members: ``doorbell``, ``more``, ``answered``: put a QP on the list; ``poll``: have its avail
    index read, after which it is put there with ``data``, the index (its position if the ring is
    broken, which is not reported; ``avail_event`` is not written); one poll of a QP at a time.
    ``o``: the next; ``settled`` (a cycle): the index that came with one has been noted.
    ``polling``: some index is on its way or not noted yet (2 cycles late); ``none``: no QP is on
    the list.
    Latency: 4 cycles, a poll a host read and 12. Nothing waits for ever: polls need host reads
    only. Reset: empty; ``qps`` cycles until the list takes anything.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "doorbell": In(stream.Signature(Activation)),
                "more": In(stream.Signature(QpNumber)),
                "answered": In(stream.Signature(QpNumber)),
                "poll": In(stream.Signature(PollJob)),
                "o": Out(stream.Signature(activation_layout(16))),
                "settled": In(1),
                "polling": Out(1),
                "none": Out(1),
                "read_client": Out(ReadClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._config.wqes_ahead == 1:
            self._nobody(m)
            return m
        qps = self._config.qps
        m.submodules.work = work = ActivationList(qps=qps, sets=4, data_width=16)
        m.submodules.polls = polls = Polls(config=self._config, notify=False)
        connect(m, polls.read_client, flipped(self.read_client))
        connect(m, flipped(self.poll), polls.i)
        connect(m, work.o, flipped(self.o))
        answer = polls.o.payload.answer
        m.d.comb += [
            work.set0.valid.eq(self.doorbell.valid),
            work.set0.payload.qp.eq(self.doorbell.payload.qp),
            work.set0.payload.flags.eq(DOORBELL),
            self.doorbell.ready.eq(work.set0.ready),
            work.set2.valid.eq(polls.o.valid),
            work.set2.payload.qp.eq(answer.qp),
            work.set2.payload.flags.eq(POLLED),
            work.set2.payload.data.eq(answer.available),
            polls.o.ready.eq(work.set2.ready),
        ]
        for port, place in ((self.more, work.set1), (self.answered, work.set3)):
            m.d.comb += [
                place.valid.eq(port.valid),
                place.payload.qp.eq(port.payload),
                place.payload.flags.eq(MORE),
                port.ready.eq(place.ready),
            ]
        count, begun, settled = Signal(range(qps + 1)), Signal(), Signal()
        # A cycle late: who decides that a poll begins decides late in its cycle.
        m.d.sync += [
            begun.eq(self.poll.valid & self.poll.ready),
            settled.eq(self.settled),
            count.eq(count + begun - settled),
        ]
        m.d.comb += [self.polling.eq(count != 0), self.none.eq((work.level == 0) & ~work.o.valid)]
        return m

    def _nobody(self, m: Module) -> None:
        """On a card that fetches nothing ahead: whoever is put on the list is forgotten."""
        for port in (self.doorbell, self.more, self.answered, self.poll):
            m.d.comb += port.ready.eq(1)
        m.d.comb += self.none.eq(1)
