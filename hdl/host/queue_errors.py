"""Virtqueues that the engines have found broken: who is told, and how often."""

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.virtio_rdma import CONTROL_QUEUE
from hdl.common.contract import require
from hdl.common.count import COUNT, increment
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.boxes import BrokenQueue, Dropped
from hdl.ports.jobs import QueueError, QueueErrorCause
from hdl.ports.numbers import number_in, ordinal_in

__all__ = ["QueueErrors"]


class _Row(data.Struct):
    """What is known of a virtqueue."""

    broken: 1  # it has been found broken since it was dropped last
    pending: 1  # the firmware has not been shown that yet
    cause: QueueErrorCause


class QueueErrors(wiring.Component):
    """Tells the firmware of broken virtqueues, each once, or the function, which needs a reset.

    A function whose driver has negotiated QUEUE_ERROR (``isolates``, a bit for each function) needs
    no reset for the rings of queue pairs, CQs and SRQs: the firmware sees to these. Each virtqueue
    has a bit, so no error is lost, however many there are, and one that is found again and again
    is told once. Virtqueues with an error are shown in turn, by a scan over all numbers.

    Spec: docs/extensions.md, QUEUE_ERROR. Members: ``i``: errors, as the engines find them; ``o``:
    those for which a function needs a reset; ``errors``: how many have come. Of a card with events
    only: ``isolates`` In; ``broken`` Out: the one to see to; ``dropped`` In: the virtqueue is as
    new, and what waited to be told of it is forgotten.
    Latency: 2 cycles to ``o``; to ``broken`` at most two cycles for each virtqueue, five while
    errors come without a pause. Throughput: an error in 3 cycles. Errors: none.
    Reset: all virtqueues are as new; clears a row a cycle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        errors = stream.Signature(QueueError)
        super().__init__(
            {"i": In(errors), "o": Out(errors), "errors": Out(COUNT)}
            | (
                {
                    "isolates": In(config.functions),
                    "dropped": In(Dropped()),
                    "broken": Out(BrokenQueue()),
                }
                if config.events
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        with m.If(self.i.valid & self.i.ready):
            increment(m, self.errors)
        if not self._config.events:
            wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
            return m
        depth = self._config.queues
        m.submodules.rows = rows = Ram(shape=_Row, depth=depth, forward=False)
        error, isolated = Signal(QueueError, reset_less=True), Signal()
        waits, dropped = Signal(), Signal(16, reset_less=True)  # a queue that is as new
        place, pending = Signal(range(depth)), Signal(range(depth + 1))
        raises, lowers = Signal(), Signal()  # ``pending``, a cycle later, as rows are late
        look, old = rows.read0, rows.read0.row
        free = Signal()  # the firmware can be shown another one
        shows, turn = Signal(), Signal()  # it is to be shown one; an error has been taken since
        m.d.comb += [
            free.eq(~self.broken.valid),
            shows.eq((pending != 0) & free),
            look.index.eq(place),
            rows.write.index.eq(place),
            self.o.payload.eq(error),
            isolated.eq(self._is_isolated(error.queue)),
        ]
        m.d.sync += [raises.eq(0), lowers.eq(0), pending.eq(pending + raises - lowers)]
        with m.FSM(name="queue_errors", init="CLEAR") as fsm:
            # CLEAR: clears all rows; ends with the last one.
            with m.State("CLEAR"):
                m.d.comb += rows.write.enable.eq(1)
                m.d.sync += place.eq(place + 1)
                with m.If(place == depth - 1):
                    m.d.sync += place.eq(0)
                    m.next = "IDLE"
            # IDLE: takes an error, or a queue that was dropped when there is none: what was found
            # before the drop is here by then. Else, and behind each error, looks at the next row,
            # while one is to be shown.
            with m.State("IDLE"):
                with m.If(self.i.valid & ~(shows & turn)):
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += [error.eq(self.i.payload), turn.eq(1)]
                    m.next = "LOOK"
                with m.Elif(waits & ~self.i.valid):
                    m.d.comb += [look.index.eq(dropped), look.enable.eq(1)]
                    m.next = "RENEW"
                with m.Elif(shows):
                    m.d.comb += look.enable.eq(1)
                    m.d.sync += turn.eq(0)
                    m.next = "SHOW"
            # LOOK: reads the row of the queue with the error; ends by itself.
            with m.State("LOOK"):
                m.d.comb += [look.index.eq(error.queue), look.enable.eq(1)]
                m.next = "FUNCTION"
                with m.If(isolated):
                    m.next = "NOTE"
            # FUNCTION: the function needs a reset; ends when it knows that.
            with m.State("FUNCTION"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
            # NOTE: notes that the firmware is to be told, unless it has been; one cycle.
            with m.State("NOTE"):
                m.d.comb += [
                    rows.write.index.eq(error.queue),
                    rows.write.row.broken.eq(1),
                    rows.write.row.pending.eq(1),
                    rows.write.row.cause.eq(error.cause),
                    rows.write.enable.eq(~old.broken),
                ]
                m.d.sync += raises.eq(~old.broken)
                m.next = "IDLE"
            # RENEW: the dropped queue is as new; one cycle.
            with m.State("RENEW"):
                m.d.comb += [rows.write.index.eq(dropped), rows.write.enable.eq(1)]
                m.d.sync += [waits.eq(0), lowers.eq(old.pending)]
                with m.If(self.broken.queue == dropped):
                    m.d.sync += self.broken.valid.eq(0)
                m.next = "IDLE"
            # SHOW: shows the firmware the queue, if it is to see it; one cycle.
            with m.State("SHOW"):
                m.d.comb += [
                    rows.write.row.eq(old),
                    rows.write.row.pending.eq(0),
                    rows.write.enable.eq(old.pending),
                ]
                m.d.sync += [
                    self.broken.valid.eq(old.pending),
                    self.broken.queue.eq(place),
                    self.broken.cause.eq(old.cause),
                    lowers.eq(old.pending),
                    place.eq(place + 1),
                ]
                with m.If(place == depth - 1):
                    m.d.sync += place.eq(0)
                m.next = "IDLE"
        self._drop(m, waits, dropped)
        again = self.dropped.valid & waits & ~fsm.ongoing("CLEAR")
        require(m, platform, ~again, "a queue is dropped long after the one before")
        # A queue that the firmware has seen to; one is shown only when there is none.
        with m.If(self.broken.valid & self.broken.done):
            m.d.sync += self.broken.valid.eq(0)
        return m

    def _is_isolated(self, queue: Value) -> Value:
        """Whether the error of a queue is the firmware's to see to."""
        config = self._config
        own = number_in(config, "queues", queue)
        shared = (own == CONTROL_QUEUE) | (own == config.event_queue)
        owner = ordinal_in(config, "queues", queue) if config.functions > 1 else Const(0)
        return self.isolates.bit_select(owner, 1) & ~shared

    def _drop(self, m: Module, waits: Signal, dropped: Signal) -> None:
        """Keeps the number of a queue that is dropped until its row is as new."""
        with m.If(self.dropped.valid):
            m.d.sync += [waits.eq(1), dropped.eq(self.dropped.queue)]
