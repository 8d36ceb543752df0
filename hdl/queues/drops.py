"""Queues whose state is dropped: by the driver's queue reset, or by a command of the firmware."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.fork import StreamFork
from hdl.ports.boxes import Dropped
from hdl.ports.jobs import DropQueue

__all__ = ["QueueDrops"]


class QueueDrops(wiring.Component):
    """Offers each queue that is dropped to all ``engines``, one queue at a time.

    Spec: Virtio 1.2, 2.6.1 (queue reset); virtio-rdma VR-3.31 (DESTROY_QP).
    Members: ``reset`` In, queues that the driver resets; ``drop`` In, queues that the firmware
    drops: ready when it is done. ``o0`` .. Out, one
    for each engine, which takes it when nothing of the queue is under way in it and nothing is
    kept that was read ahead. ``dropped`` Out: all of them have taken it.
    After a reset the ring starts again at 0. After a drop (``keep_index``) both ring indices go on
    where they are. That is the only difference.
    Latency: 2 cycles, and as long as the engines need. Reset: nothing is offered.
    """

    def __init__(self, *, engines: int):
        self._engines = engines
        queues = stream.Signature(DropQueue)
        super().__init__(
            {"reset": In(stream.Signature(16)), "drop": In(queues), "dropped": Out(Dropped())}
            | {f"o{n}": Out(queues) for n in range(engines)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fork = fork = StreamFork(shape=DropQueue, outputs=self._engines)
        for n in range(self._engines):
            wiring.connect(m, getattr(fork, f"o{n}"), wiring.flipped(getattr(self, f"o{n}")))
        busy, by_firmware = Signal(), Signal()
        done = Signal()  # all engines have taken it: that is known late, so it counts a cycle later
        dropped = Signal(DropQueue, reset_less=True)
        m.d.sync += done.eq(fork.done)
        with m.If(~busy & ~done):
            m.d.sync += [
                busy.eq(self.reset.valid | self.drop.valid),
                by_firmware.eq(~self.reset.valid),
                dropped.eq(self.drop.payload),
            ]
            with m.If(self.reset.valid):
                m.d.sync += [dropped.eq(0), dropped.queue.eq(self.reset.payload)]
        with m.Elif(fork.done):
            m.d.sync += busy.eq(0)
        m.d.comb += [
            fork.i.valid.eq(busy),
            fork.i.payload.eq(dropped),
            self.drop.ready.eq(done & by_firmware),
            self.reset.ready.eq(done & ~by_firmware),
            self.dropped.valid.eq(done),
            self.dropped.queue.eq(dropped.queue),
        ]
        return m
