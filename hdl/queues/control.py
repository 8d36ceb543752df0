"""The control queue: requests to the firmware's mailbox, responses back to the driver."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_rdma import CONTROL_QUEUE
from hdl.common.count import COUNT, increment
from hdl.common.skid import Stage
from hdl.config import NicConfig
from hdl.ports.host import STREAM_CONTROL, ReadClient, WriteClient, write_beat
from hdl.ports.jobs import (
    Doorbell,
    DropQueue,
    FetchStatus,
    Interrupt,
    QueueError,
    QueueErrorCause,
)
from hdl.ports.rows import QueueRow
from hdl.ports.tables import TableRead, TableWrite

from .completion import connect_stream
from .element import ElementReader
from .read import ReadShare
from .response import ResponseWriter
from .ring import AvailRing
from .types import NO_VECTOR
from .used import UsedWriter
from .walker import Walker

__all__ = ["ControlEngine", "MAILBOX_BYTES"]

#: Bytes of the mailbox, each way.
MAILBOX_BYTES = 256
MAX_CHAIN = (1 << 32) - 1


class ControlEngine(wiring.Component):
    """Takes one control request at a time from virtqueue 0, and returns it with its response.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-3.1 to VR-3.5.
    Members, towards the mailbox: ``pending`` from the complete request to its response;
    ``request_length`` (all readable bytes, at most 65535), ``writable_length``; ``request`` the
    first 256 bytes as words, byte 0 in bits 7:0; ``response_length``, ``done`` (a cycle),
    ``response`` read port (latency 1). Others: ``doorbell`` (of queue 0, always ready),
    ``function``, ``queue_read``, ``queue_reset``, ``interrupt``, ``error``, ``idle``; ``requests``
    counts those given to the firmware. ``queue_reset``: taken between requests; the queue starts
    again at 0 (other queues' numbers are taken and ignored). A response longer than the driver's
    buffers is cut; the used length says so. A request without a writable byte is returned with
    length 0, the firmware does not see it.
    Latency: three or four host reads from doorbell to ``pending``; the response one cycle per byte:
    control requests are rare. Errors: a broken ring stops the queue until it is reset.
    Reset: position 0, nothing pending.
    """

    def __init__(self, *, config: NicConfig, stream_id: int = STREAM_CONTROL):
        self._config, self._stream_id = config, stream_id
        super().__init__(
            {
                "doorbell": In(stream.Signature(Doorbell)),
                "function": In(8),
                "pending": Out(1),
                "request_length": Out(16),
                "writable_length": Out(32),
                "request": Out(TableWrite(6, 32)),
                "response_length": In(16),
                "done": In(1),
                "response": Out(TableRead(6, 32)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "error": Out(stream.Signature(QueueError)),
                "event_idx": In(1),
                "indirect": In(1),
                "idle": Out(1),
                "requests": Out(COUNT),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, stream_id = self._config, self._stream_id
        m.submodules.ring = ring = AvailRing(config=config, stream_id=stream_id)
        m.submodules.walker = walker = Walker(config=config)
        m.submodules.element = element = ElementReader(config=config, limit=MAILBOX_BYTES)
        m.submodules.writer = writer = ResponseWriter(
            config=config, limit=MAILBOX_BYTES, stream_id=stream_id
        )
        m.submodules.used = used = UsedWriter(config=config, stream_id=stream_id)
        m.submodules.share = share = ReadShare(width=config.width, clients=4)
        # What is written passes a register, and nothing is read before it has left that.
        m.submodules.output = output = Stage(shape=write_beat(config.width))
        connect(m, output.o, flipped(self.write_client.beat))
        asked, asks = share.read_client, self.read_client
        m.d.comb += [
            asks.req.payload.eq(asked.req.payload),
            asks.req.valid.eq(asked.req.valid & ~output.o.valid),
            asked.req.ready.eq(asks.req.ready & ~output.o.valid),
        ]
        connect(m, asked.rsp, flipped(asks.rsp))
        for i, user in enumerate((ring, walker, element, used)):
            connect(m, user.read_client, getattr(share, f"client{i}"))
        connect(m, used.interrupt, flipped(self.interrupt))
        connect(m, writer.response, flipped(self.response))

        row = self.queue_read.row
        position, known, used_index = Signal(16), Signal(16), Signal(16)
        wake, stopped = Signal(), Signal()
        head = Signal(16, reset_less=True)
        cause = Signal(QueueErrorCause)
        pending = Signal()
        m.d.comb += [
            self.doorbell.ready.eq(1),
            self.queue_read.index.eq(CONTROL_QUEUE),
            ring.event_idx.eq(self.event_idx),
            ring.i.payload.function.eq(self.function),
            ring.i.payload.queue.eq(CONTROL_QUEUE),
            ring.i.payload.row.eq(row),
            ring.i.payload.position.eq(position),
            ring.i.payload.known.eq(known),
            walker.indirect.eq(self.indirect),
            walker.i.payload.function.eq(self.function),
            walker.i.payload.desc.eq(row.desc),
            walker.i.payload.size_log2.eq(row.size_log2),
            walker.i.payload.head.eq(head),
            walker.i.payload.limit.eq(MAX_CHAIN),
            walker.i.payload.readable.eq(1),
            walker.i.payload.writable.eq(1),
            element.function.eq(self.function),
            writer.function.eq(self.function),
            writer.length.eq(self.response_length),
            used.accepted.eq(~output.o.valid),
            used.event_idx.eq(self.event_idx),
            used.i.payload.function.eq(self.function),
            used.i.payload.ring.size_log2.eq(row.size_log2),
            used.i.payload.ring.driver.eq(row.driver),
            used.i.payload.ring.device.eq(row.device),
            used.i.payload.ring.vector.eq(row.vector),
            used.i.payload.ring.queue.eq(CONTROL_QUEUE),
            used.i.payload.index.eq(used_index),
            used.i.payload.head.eq(head),
            used.i.payload.length.eq(writer.written),
            used.i.payload.notify.eq(row.vector != NO_VECTOR),
            self.pending.eq(pending),
            self.error.payload.queue.eq(CONTROL_QUEUE),
            self.error.payload.cause.eq(cause),
        ]

        # Readable buffers to the element, writable ones to the response writer. The element ends
        # at the first writable buffer, or with the chain.
        segment, reading = walker.o.payload, Signal()
        ends = segment.writable & reading
        m.d.comb += [
            element.i.payload.eq(segment),
            element.i.payload.last.eq(segment.last | ends),
            writer.i.payload.eq(segment),
        ]
        with m.If(ends):
            # The buffer itself stays where it is; only the end is passed on.
            m.d.comb += [
                element.i.valid.eq(walker.o.valid),
                element.i.payload.length.eq(0),
            ]
            with m.If(element.i.valid & element.i.ready):
                m.d.sync += reading.eq(0)
        with m.Elif(reading):
            m.d.comb += [
                element.i.valid.eq(walker.o.valid),
                walker.o.ready.eq(element.i.ready),
            ]
            with m.If(element.i.valid & element.i.ready & segment.last):
                m.d.sync += reading.eq(0)
        with m.Else():
            m.d.comb += [
                writer.i.valid.eq(walker.o.valid),
                walker.o.ready.eq(writer.i.ready),
            ]
        chain_ended, chain_done, element_done = Signal(), Signal(), Signal()
        m.d.sync += chain_done.eq(chain_ended)  # the writer's total is there
        with m.If(walker.o.valid & walker.o.ready & segment.last):
            m.d.sync += chain_ended.eq(1)
            with m.If(segment.cause != QueueErrorCause.NONE):
                m.d.sync += cause.eq(segment.cause)

        # Words of the request, half a word of the element at a time.
        upper, place = Signal(), Signal(5)
        word = element.o.payload
        m.d.comb += [
            self.request.index.eq(Cat(upper, place)),
            self.request.row.eq(Mux(upper, word.data[32:], word.data[:32])),
            self.request.enable.eq(element.o.valid & (word.count != 0)),
            element.o.ready.eq(upper | (word.count == 0)),
        ]
        with m.If(self.request.enable):
            m.d.sync += upper.eq(~upper)
            with m.If(upper):
                m.d.sync += place.eq(place + 1)
        with m.If(element.o.valid & element.o.ready & word.last):
            m.d.sync += [
                element_done.eq(1),
                self.request_length.eq(Mux(element.length > 0xFFFF, 0xFFFF, element.length[:16])),
            ]
            with m.If((element.cause != QueueErrorCause.NONE) & (cause == QueueErrorCause.NONE)):
                m.d.sync += cause.eq(element.cause)

        with m.If(writer.writing):
            connect_stream(m, writer.write_client.beat, output.i)
        with m.Elif(ring.write_client.beat.valid):
            connect_stream(m, ring.write_client.beat, output.i)
        with m.Else():
            connect_stream(m, used.write_client.beat, output.i)

        with m.If(self.error.ready):
            m.d.sync += self.error.valid.eq(0)
        # Others are dropped while a request is with the firmware: that may be what it asks for.
        own_reset = self.queue_reset.payload.queue == CONTROL_QUEUE
        m.d.comb += self.queue_reset.ready.eq(~own_reset)
        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq((~wake | stopped) & ~output.o.valid)
                with m.If(self.queue_reset.valid & own_reset):
                    m.d.comb += self.queue_reset.ready.eq(1)
                    m.d.sync += [
                        position.eq(0),
                        known.eq(0),
                        used_index.eq(0),
                        stopped.eq(0),
                        wake.eq(0),
                    ]
                with m.Elif(wake & ~stopped & ~self.error.valid):
                    m.d.comb += self.queue_read.enable.eq(1)
                    m.d.sync += wake.eq(0)
                    m.next = "RING"
            with m.State("RING"):
                m.d.comb += ring.i.valid.eq(1)
                with m.If(ring.i.ready):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += ring.o.ready.eq(1)
                m.d.sync += [
                    head.eq(ring.o.payload.head),
                    known.eq(ring.o.payload.available),
                    cause.eq(ring.o.payload.cause),
                ]
                with m.If(ring.o.valid):
                    with m.If(ring.o.payload.status == FetchStatus.OK):
                        m.next = "WALK"
                    with m.Elif(ring.o.payload.status == FetchStatus.QUEUE_ERROR):
                        m.next = "ERROR"
                    with m.Else():
                        m.next = "IDLE"
            with m.State("WALK"):
                m.d.comb += [walker.i.valid.eq(1), writer.clear.eq(1)]
                m.d.sync += [
                    reading.eq(1),
                    chain_ended.eq(0),
                    chain_done.eq(0),
                    element_done.eq(0),
                    upper.eq(0),
                    place.eq(0),
                ]
                with m.If(walker.i.ready):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.sync += self.writable_length.eq(writer.total)
                with m.If(chain_done & element_done):
                    with m.If(cause != QueueErrorCause.NONE):
                        m.next = "ERROR"
                    with m.Elif(writer.total == 0):
                        m.next = "RETURN"
                    with m.Else():
                        m.d.sync += pending.eq(1)
                        increment(m, self.requests)
                        m.next = "FIRMWARE"
            with m.State("FIRMWARE"):
                with m.If(self.done):
                    m.d.sync += pending.eq(0)
                    m.d.comb += writer.start.eq(1)
                    m.next = "RESPONSE"
            with m.State("RESPONSE"):
                with m.If(writer.done):
                    m.next = "RETURN"
            with m.State("RETURN"):
                m.d.comb += used.i.valid.eq(1)
                with m.If(used.i.ready):
                    m.next = "RETURNED"
            with m.State("RETURNED"):
                with m.If(used.done):
                    m.d.sync += [
                        used_index.eq(used_index + 1),
                        position.eq(position + 1),
                        wake.eq(1),
                    ]
                    m.next = "IDLE"
            with m.State("ERROR"):
                m.d.sync += [self.error.valid.eq(1), stopped.eq(1)]
                m.next = "IDLE"
        with m.If(self.doorbell.valid):
            m.d.sync += wake.eq(1)
        return m
