"""The data path of the network function: a virtio-net device in hardware."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from hdl.common.arbiter import StreamArbiter
from hdl.common.contract import keeps_offers
from hdl.common.count import add_up, increment
from hdl.common.skid import Register
from hdl.config import NicConfig
from hdl.ports.jobs import Doorbell, Interrupt, QueueError
from hdl.ports.network import NetworkPort

from .receive import Receive
from .share import WriteShare
from .transmit import Transmit

__all__ = ["Network"]


class Network(wiring.Component):
    """Receive and transmit queues of the card's virtio-net function.

    Spec: Virtio 1.2, 5.1, 2.7; docs/network.md.
    Members: see NetworkPort.
    Latency, throughput: docs/network.md. Errors: a broken queue stops, and is told by ``error``; a
    frame that cannot be delivered or sent is dropped and counted.
    Reset: of the card only; ``restart`` forgets the function.
    """

    def __init__(self, *, config: NicConfig):
        if not config.network:
            raise ValueError("The card must have a network function, but network is 0")
        self._config = config
        super().__init__(NetworkPort(config))

    def elaborate(self, platform):
        m = Module()
        config, width = self._config, self._config.width
        m.submodules.receive = receive = Receive(config=config)
        m.submodules.transmit = transmit = Transmit(config=config)
        m.submodules.used_share = share = WriteShare(width=width, clients=4)
        m.submodules.interrupts = interrupts = StreamArbiter(shape=Interrupt, inputs=2)
        m.submodules.errors = errors = StreamArbiter(shape=QueueError, inputs=2)
        sides = (receive, transmit)
        for n, side in enumerate(sides):
            connect(m, side.events, getattr(share, f"client{n}"))
            connect(m, side.used, getattr(share, f"client{2 + n}"))
            connect(m, side.interrupt, getattr(interrupts, f"i{n}"))
            error = getattr(errors, f"i{n}")
            m.d.comb += [
                error.valid.eq(side.error.valid),
                error.payload.queue.eq(side.error.payload.pair << 1 | n),
                error.payload.cause.eq(side.error.payload.cause),
                side.error.ready.eq(error.ready),
                side.restart.eq(self.restart),
            ]
        for one, other in (
            (receive.reads, self.rings_receive),
            (transmit.reads, self.rings_transmit),
            (receive.rows, self.rows_receive),
            (receive.rows_used, self.rows_receive_used),
            (transmit.rows, self.rows_transmit),
            (transmit.rows_used, self.rows_transmit_used),
            (receive.frames_write, self.frames_write),
            (transmit.frames_read, self.frames_read),
            (transmit.sent, self.sent),
            (share.write_client, self.used),
            (interrupts.o, self.interrupt),
            (errors.o, self.error),
        ):
            connect(m, one, flipped(other))
        connect(m, flipped(self.received), receive.received)
        m.d.comb += [
            receive.verdict.eq(self.verdict),
            receive.core_reset.eq(self.core_reset),
            receive.features.eq(self.features),
            transmit.features.eq(self.features),
            receive.settings.eq(self.settings),
        ]
        self._control(m, sides)
        self._count(m, receive, transmit)
        keeps_offers(m, platform, self)
        return m

    def _control(self, m: Module, sides) -> None:
        """Doorbells, start and end."""
        m.submodules.doorbells = doorbells = Register(shape=Doorbell)
        connect(m, flipped(self.doorbell), doorbells.i)
        bell, ran, forgets = doorbells.o, Signal(), Signal()
        queue = self.queue_reset
        runs = self.settings.running
        m.d.sync += ran.eq(runs)
        m.d.comb += bell.ready.eq(1)
        for n, side in enumerate(sides):
            forgets_side = Signal(name=f"forgets{n}")
            m.d.comb += [
                side.doorbell.eq(bell.valid & (bell.payload.queue[0] == n)),
                side.doorbell_pair.eq(bell.payload.queue[1:]),
                side.start.eq(runs & ~ran),
                side.quiet.eq(
                    self.hold | ~runs | (queue.valid & (queue.payload[0] == n) & ~forgets)
                ),
                forgets_side.eq(queue.valid & (queue.payload[0] == n) & side.idle),
                side.forget.eq(forgets_side & ~forgets),
                side.forget_pair.eq(queue.payload[1:]),
            ]
        told = self.used.beat.valid | self.interrupt.valid | self.error.valid  # or to be
        # A queue is forgotten in one cycle, and that is told in the next one.
        asked = Array(side.forget for side in sides)[queue.payload[0]]
        m.d.sync += forgets.eq(asked)
        m.d.comb += [
            queue.ready.eq(forgets),
            self.idle.eq(self.hold & sides[0].idle & sides[1].idle & ~told),
        ]

    def _count(self, m: Module, receive, transmit) -> None:
        """Counters."""
        counts = self.counts
        m.d.comb += [
            counts.net_rx_drops_buffer.eq(receive.drops_buffer),
            counts.net_rx_drops_queue.eq(receive.drops_queue),
            counts.net_rx_filtered.eq(receive.filtered),
            counts.net_tx_errors.eq(transmit.errors),
        ]
        for frames, total, done, length in (
            (counts.net_rx_frames, counts.net_rx_bytes, receive.delivered, receive.length),
            (counts.net_tx_frames, counts.net_tx_bytes, transmit.stored, transmit.length),
        ):
            with m.If(done):
                increment(m, frames)
            add_up(m, total, length, done)
