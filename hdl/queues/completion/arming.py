"""Doorbells that arm completion queues, between completions."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import ARM_SEEN_BITS
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.jobs import Completion
from hdl.ports.numbers import CqNumber, completion_queue, function_of, ordinal_in

__all__ = ["ArmRequest", "Arming"]

#: Doorbells that may wait for completions in front of them.
DEPTH = 16


class ArmRequest(data.Struct):
    """Arm ``cq`` if the driver has seen all its completions, up to used index ``seen``; else tell
    it. ``solicited``: for a completion that is solicited, or in error; else for any."""

    cq: CqNumber
    seen: ARM_SEEN_BITS
    solicited: 1


class Arming(wiring.Component):
    """Puts requests to arm a CQ among the completions, as completions without a CQE.

    So a request finds its CQ's used index and vector as a completion finds those of its WQE's
    queue: as the one that returns a buffer to the CQ's own virtqueue. ``head`` is ``seen`` then.
    Spec: docs/extensions.md, ARM_CQ.
    Members: ``request``; ``i`` completions; ``o`` both; ``arms``: what is at ``o`` is a request.
    Latency: a request 2 cycles, a completion none. Throughput: a completion a cycle; after each
    request a completion goes first, so a driver that rings without an end delays others by no more
    than as many completions would. Errors: none. Reset: empty.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "request": In(stream.Signature(ArmRequest)),
                "i": In(stream.Signature(Completion)),
                "o": Out(stream.Signature(Completion)),
                "arms": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.requests = requests = StreamFifo(shape=ArmRequest, depth=DEPTH)
        connect(m, flipped(self.request), requests.i)
        request, job, chosen = requests.o, self.o.payload, Signal()
        cq = request.payload.cq
        m.d.comb += [job.eq(self.i.payload), self.arms.eq(chosen)]
        with m.If(chosen):
            m.d.comb += [
                self.o.valid.eq(1),
                request.ready.eq(self.o.ready),
                job.emit.eq(0),
                job.ring.eq(1),
                job.cq.eq(cq),
                job.queue.eq(completion_queue(self._config, cq)),
                job.head.eq(request.payload.seen),
                job.solicited.eq(request.payload.solicited),
                job.function.eq(function_of(ordinal_in(self._config, "cqs", cq))),
            ]
            m.d.sync += chosen.eq(~self.o.ready)
        with m.Else():
            m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
            # What is offered stays.
            m.d.sync += chosen.eq(request.valid & (~self.i.valid | self.o.ready))
        return m
