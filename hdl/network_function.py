"""The network function behind its PCI face: the data path of its frames, and its control queue."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_pci import NetFeature
from hdl.common.arbiter import StreamArbiter
from hdl.common.packet import packet_stream
from hdl.config import NicConfig
from hdl.csr.mailbox import MailboxPort
from hdl.csr.network import NET_REQUEST_WORDS
from hdl.network.network import Network
from hdl.ports.jobs import Interrupt, QueueError
from hdl.ports.network import NETWORK_READS, NETWORK_ROWS
from hdl.ports.network_boxes import NetworkHost, NetworkTables
from hdl.ports.trace import FrameTap, Verdict
from hdl.queues.control.network import NetworkControl

__all__ = ["NetworkFunction"]

#: Number of the control queue without MQ and RSS (Virtio 1.2, 5.1.2).
CONTROL_OF_ONE_PAIR = 2


class NetworkFunction(wiring.Component):
    """Joins ``Network`` and ``NetworkControl``: each virtqueue goes to the one that serves it.

    Members: ``host``: the host side; ``mailbox``: requests of its control queue to the firmware;
    ``tables``: settings and counts; ``received``, ``verdict``, ``core_reset``: what the ingress
    takes, see ``Network``; ``sent`` Out: whole frames.
    Latency, throughput, errors: see the parts. Reset: nothing is known of the function.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "host": Out(NetworkHost(config)),
                "mailbox": Out(MailboxPort(posts=False, words=NET_REQUEST_WORDS)),
                "tables": In(NetworkTables()),
                "received": In(FrameTap(config.width)),
                "verdict": In(Verdict),
                "core_reset": In(1),
                "sent": Out(packet_stream(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        host = self.host
        m.submodules.network = network = Network(config=self._config)
        m.submodules.control = control = NetworkControl(config=self._config)

        def part(name: str, component):
            m.submodules[name] = ResetInserter(host.restart)(component)
            return component

        interrupts = part("interrupts", StreamArbiter(shape=Interrupt, inputs=2))
        errors = part("errors", StreamArbiter(shape=QueueError, inputs=2))
        for name in (*NETWORK_READS, *NETWORK_ROWS, "frames_read", "frames_write", "used"):
            connect(m, getattr(network, name), flipped(getattr(host, name)))
        for mine, its in (
            (host.control_read, control.read_client),
            (host.control_write, control.write_client),
            (host.rows_control, control.queue_read),
            (self.mailbox, control.mailbox),
            (self.sent, network.sent),
        ):
            connect(m, its, flipped(mine))
        for number, one in enumerate((network, control)):
            connect(m, one.interrupt, getattr(interrupts, f"i{number}"))
            connect(m, one.error, getattr(errors, f"i{number}"))
        connect(m, interrupts.o, flipped(host.interrupt))
        connect(m, errors.o, flipped(host.error))
        self._queues(m, network, control)
        m.d.comb += [
            network.features.eq(host.features),
            network.settings.eq(self.tables.settings),
            self.tables.counts.eq(network.counts),
            network.received.valid.eq(self.received.valid),
            network.received.beat.eq(self.received.beat),
            network.verdict.eq(self.verdict),
            network.core_reset.eq(self.core_reset),
            host.idle.eq(network.idle & control.idle),
        ]
        for one in (network, control):
            m.d.comb += [one.hold.eq(host.hold), one.restart.eq(host.restart)]
        return m

    def _queues(self, m: Module, network, control) -> None:
        """Doorbells and queue resets, to the part that serves the queue."""
        host, pairs = self.host, self._config.network
        number = Signal(16)  # of the control queue
        several = host.features[NetFeature.MQ] | host.features[NetFeature.RSS]
        m.d.comb += [
            number.eq(Mux(several, 2 * pairs, CONTROL_OF_ONE_PAIR)),
            control.queue.eq(number),
        ]
        rung, reset = host.doorbell, host.queue_reset
        m.d.comb += [
            network.doorbell.payload.eq(rung.payload),
            network.queue_reset.payload.eq(reset.payload),
        ]
        with m.If(rung.payload.queue == number):
            m.d.comb += [control.doorbell.eq(rung.valid), rung.ready.eq(1)]
        with m.Elif(rung.payload.queue > number):
            m.d.comb += rung.ready.eq(1)  # a queue that does not exist without them
        with m.Else():
            m.d.comb += [
                network.doorbell.valid.eq(rung.valid),
                rung.ready.eq(network.doorbell.ready),
            ]
        with m.If(reset.payload == number):
            m.d.comb += [
                control.queue_reset.eq(reset.valid),
                reset.ready.eq(control.queue_reset_done),
            ]
        with m.Elif(reset.payload > number):
            m.d.comb += reset.ready.eq(1)
        with m.Else():
            m.d.comb += [
                network.queue_reset.valid.eq(reset.valid),
                reset.ready.eq(network.queue_reset.ready),
            ]
