"""The control queue of the network function."""

from dataclasses import replace

from amaranth.hdl import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import CONTROL_QUEUE
from hdl.common.streams import connect_stream
from hdl.common.tables import TableRead
from hdl.config import FUNCTION_NET, NicConfig
from hdl.csr.mailbox import MailboxPort
from hdl.csr.network import NET_REQUEST_WORDS
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import Interrupt, QueueError
from hdl.ports.rows import QueueRow

from .engine import ControlEngine

__all__ = ["NetworkControl"]

#: Members that the engine has too, as they are.
SAME = ("pending", "request_length", "writable_length", "response_length", "done")


class NetworkControl(wiring.Component):
    """A ``ControlEngine`` for the network function, in whose rings the queue has another number.

    Members: ``queue`` In: its number; ``doorbell`` In (a cycle): it has got one; ``queue_reset``
    In: it is reset, held until ``queue_reset_done`` Out (a cycle); ``mailbox``; ``read_client``,
    ``write_client``, ``queue_read``, ``interrupt``, ``error``. ``hold`` In: the function is being
    reset, no new request begins; ``idle`` Out; ``restart`` In: forgets all.
    Latency, throughput, errors: see ``ControlEngine``. Reset: position 0, nothing pending.
    """

    def __init__(self, *, config: NicConfig):
        # The engine takes its function for the only one, and its queue for the control queue.
        self._config = replace(config, functions=1, events=False)
        super().__init__(
            {
                "queue": In(16),
                "doorbell": In(1),
                "queue_reset": In(1),
                "queue_reset_done": Out(1),
                "mailbox": Out(MailboxPort(posts=False, words=NET_REQUEST_WORDS)),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "error": Out(stream.Signature(QueueError)),
                "hold": In(1),
                "idle": Out(1),
                "restart": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        engine = ControlEngine(config=self._config, limit=4 * NET_REQUEST_WORDS)
        m.submodules.engine = ResetInserter(self.restart)(engine)
        connect(m, engine.request, flipped(self.mailbox.request))
        connect(m, engine.response, flipped(self.mailbox.response))
        reads, writes = self.read_client, self.write_client.beat
        connect_stream(m, engine.read_client.req, reads.req)
        connect(m, flipped(reads.rsp), engine.read_client.rsp)
        connect_stream(m, engine.write_client.beat, writes)
        connect_stream(m, engine.interrupt, self.interrupt)
        connect_stream(m, engine.error, self.error)
        connect(m, engine.queue_read, flipped(self.queue_read))
        reset = engine.queue_reset
        mailbox = self.mailbox
        m.d.comb += [
            getattr(mailbox, name).eq(getattr(engine, name))
            if mailbox.signature.members[name].flow == Out
            else getattr(engine, name).eq(getattr(mailbox, name))
            for name in SAME
        ]
        m.d.comb += [
            mailbox.function.eq(FUNCTION_NET),
            reads.req.payload.function.eq(FUNCTION_NET),
            writes.payload.function.eq(FUNCTION_NET),
            self.interrupt.payload.function.eq(FUNCTION_NET),
            self.error.payload.queue.eq(self.queue),
            self.queue_read.index.eq(self.queue),
            engine.doorbell.valid.eq(self.doorbell),
            engine.doorbell.payload.queue.eq(CONTROL_QUEUE),
            reset.valid.eq(self.queue_reset),
            reset.payload.queue.eq(CONTROL_QUEUE),
            self.queue_reset_done.eq(reset.valid & reset.ready),
            engine.resetting.eq(self.hold),
            self.idle.eq(engine.idle),
        ]
        return m
