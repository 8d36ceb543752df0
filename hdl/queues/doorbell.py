"""Notifications by virtqueue number: to the control engine, the scheduler, the receive side."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import CONTROL_QUEUE, GSI_QP_INDEX
from hdl.common.activation import activation_layout
from hdl.common.count import COUNT, increment
from hdl.common.fork import StreamFork
from hdl.common.skid import Register
from hdl.config import NicConfig
from hdl.ports.jobs import Activation, Doorbell
from hdl.ports.numbers import CqNumber, QpNumber, card_number, number_in, ordinal_in

from .completion.arming import ArmRequest

__all__ = ["DoorbellRouter", "FLAG_DOORBELL", "FLAG_NEXT"]

#: Flags of an activation of the scheduler: a doorbell; it carries the avail index.
FLAG_DOORBELL, FLAG_NEXT = 1, 8


class DoorbellRouter(wiring.Component):
    """Routes doorbells; every output is always accepted in the end, so every doorbell is.

    Spec: virtio-rdma VR-1.2 (queue numbers), Virtio 1.2, 2.9 (NOTIFICATION_DATA);
    docs/extensions.md, ARM_CQ.
    Members: ``i``; ``control`` (queue 0 of a function); ``send`` (a send queue: QP, flags DOORBELL
    and NEXT, the avail index as data); ``receive`` (a receive queue: QP with ``receive_flags``);
    ``arm`` (a completion queue, by a doorbell that arms it). Other doorbells of completion queues,
    and those of the event queue, go nowhere: their buffers are looked for when they are needed.
    ``ahead``: the same as ``receive``, to fetch receive WQEs ahead.
    Latency: 1 cycle, 2 to ``ahead``. Throughput: a doorbell per two cycles.
    Errors: ``drops`` counts doorbells of queues that do not exist and of pair 0 of a function.
    """

    def __init__(self, *, config: NicConfig, receive_flags: int = 1):
        if not 0 < receive_flags < 16:
            raise ValueError(f"Receive flags must be 1 to 15, not {receive_flags!r}")
        self._config, self._flags = config, receive_flags
        super().__init__(
            {
                "i": In(stream.Signature(Doorbell)),
                "control": Out(stream.Signature(Doorbell)),
                "send": Out(stream.Signature(activation_layout(16))),
                "receive": Out(stream.Signature(Activation)),
                "ahead": Out(stream.Signature(Activation)),
                "arm": Out(stream.Signature(ArmRequest)),
                "drops": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        first = config.sq_queue(0)
        m.submodules.fork = fork = StreamFork(shape=Activation, outputs=2)
        connect(m, fork.o0, flipped(self.receive))
        # Its ``ready`` comes late.
        m.submodules.register = register = Register(shape=Activation)
        connect(m, fork.o1, register.i)
        connect(m, register.o, flipped(self.ahead))
        held = Signal(Doorbell, reset_less=True)
        waiting = Signal()
        receives = Signal(reset_less=True)
        qp = Signal(QpNumber, reset_less=True)
        is_control, is_cq, is_event, is_nothing = Signal(), Signal(), Signal(), Signal()
        cq = Signal(CqNumber, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~waiting),
            self.control.payload.eq(held),
            self.send.payload.qp.eq(qp),
            self.send.payload.flags.eq(FLAG_DOORBELL | Mux(held.has_next, FLAG_NEXT, 0)),
            self.send.payload.data.eq(held.next),
            fork.i.payload.qp.eq(qp),
            fork.i.payload.flags.eq(self._flags),
            self.arm.payload.cq.eq(cq),
            self.arm.payload.seen.eq(held.next),
            self.arm.payload.solicited.eq(held.next[-1]),
        ]
        gone = Signal()
        with m.If(is_control):
            m.d.comb += [self.control.valid.eq(waiting), gone.eq(self.control.ready)]
        with m.Elif(is_cq):
            m.d.comb += [
                self.arm.valid.eq(waiting & held.arms),
                gone.eq(self.arm.ready | ~held.arms),
            ]
        with m.Elif(is_event):
            m.d.comb += gone.eq(1)
        with m.Elif(is_nothing):
            m.d.comb += gone.eq(1)
            with m.If(waiting):
                increment(m, self.drops)
        with m.Elif(receives):
            m.d.comb += [fork.i.valid.eq(waiting), gone.eq(fork.i.ready)]
        with m.Else():
            m.d.comb += [self.send.valid.eq(waiting), gone.eq(self.send.ready)]
        with m.If(~waiting):
            queue = number_in(config, "queues", self.i.payload.queue)
            ordinal = ordinal_in(config, "queues", self.i.payload.queue)
            nth = queue - first
            m.d.sync += [
                held.eq(self.i.payload),
                waiting.eq(self.i.valid),
                receives.eq(nth[0]),
                qp.eq(card_number(config, "qps", ordinal, nth[1:])),
                is_control.eq(queue == CONTROL_QUEUE),
                cq.eq(card_number(config, "cqs", ordinal, queue - config.cq_queue(0))),
                is_cq.eq(queue < first),
                is_event.eq(queue == config.event_queue),
                is_nothing.eq(
                    (queue >= config.guest.queues)
                    | (queue < config.sq_queue(GSI_QP_INDEX))
                    | ((self.i.payload.queue >> len(queue) + config.ordinal_bits) != 0)
                ),
            ]
        with m.Elif(gone):
            m.d.sync += waiting.eq(0)
        return m
