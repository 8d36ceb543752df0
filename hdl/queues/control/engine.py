"""The control queue: requests to the firmware's mailbox, responses back to the driver."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import CONTROL_QUEUE, EVENT
from hdl.common.count import COUNT, increment
from hdl.common.skid import Register, Stage
from hdl.common.streams import connect_stream
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.csr.mailbox import ROW_BITS, QueuePost
from hdl.ports.host import STREAM_CONTROL, ReadClient, ReadRequest, WriteClient, write_beat
from hdl.ports.jobs import (
    Doorbell,
    DropQueue,
    FetchStatus,
    Interrupt,
    QueueError,
    QueueErrorCause,
)
from hdl.ports.numbers import card_number, function_of, number_in, of_function, ordinal_in
from hdl.ports.rows import QueueRow

from ..ring.avail import AvailRing
from ..ring.packed import is_packed, used_base
from ..ring.read import ReadShare
from ..ring.types import NO_VECTOR
from ..ring.used import UsedWriter
from ..ring.walker import Walker
from ..wqe.element import ElementReader
from .response import ResponseWriter
from .types import ControlChain, ControlJob, ControlQueue

__all__ = ["ControlEngine", "MAILBOX_BYTES"]

#: Bytes of the mailbox, each way; of the request unless told otherwise.
MAILBOX_BYTES = 256
MAX_CHAIN = (1 << 32) - 1


class ControlEngine(wiring.Component):
    """Takes one control request at a time from a control queue, and returns it with its response.

    The functions with requests take turns. A request of one waits for that of another.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-3.1 to VR-3.5.
    Members, towards the mailbox: ``pending`` from the complete request to its response;
    ``function`` that asks; ``request_length`` (all readable bytes, at most 65535),
    ``writable_length``; ``request`` its first ``limit`` bytes as words, byte 0 in bits 7:0;
    ``response_length``, ``done`` (a cycle), ``response`` read port (latency 1). Others:
    ``doorbell`` (of a control queue, always ready), ``queue_read``, ``queue_reset``, ``interrupt``,
    ``error``, ``idle``; ``resetting``: no request of these functions reaches the firmware any more;
    ``requests`` counts those given to the firmware. ``queue_reset``: taken between requests of its
    function; the queue starts again at 0 (other queues' numbers are taken and ignored, that of
    ``post`` when this is done). ``post``: what the firmware does to a queue by itself, between
    requests (``QueuePost``): it reads an avail index, or writes an event to the next buffer of the
    event queue. A response longer than the driver's buffers is cut; the used length says so. A
    request without a writable byte is returned with length 0, the firmware does not see it.
    Latency: three or four host reads from doorbell to ``pending``; the response one cycle per byte:
    control requests are rare. Errors: a broken ring stops the queue until it is reset.
    Reset: position 0, nothing pending.
    """

    def __init__(
        self, *, config: NicConfig, stream_id: int = STREAM_CONTROL, limit: int = MAILBOX_BYTES
    ):
        self._config, self._stream_id, self._limit = config, stream_id, limit
        super().__init__(
            {
                "doorbell": In(stream.Signature(Doorbell)),
                "pending": Out(1),
                "function": Out(8),
                "request_length": Out(16),
                "writable_length": Out(32),
                "request": Out(TableWrite((limit // 4 - 1).bit_length(), 32)),
                "response_length": In(16),
                "done": In(1),
                "response": Out(TableRead(ROW_BITS, 32)),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(DropQueue)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "error": Out(stream.Signature(QueueError)),
                "resetting": In(config.functions),
                "idle": Out(1),
                "requests": Out(COUNT),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
            | ({"post": In(QueuePost())} if config.events else {})
        )

    def elaborate(self, platform):
        m = Module()
        self._connect(m)
        config = self._config
        self._more = Signal(ceil_log2(self._limit // MAILBOX_BYTES))
        chain, pending = Signal(ControlChain), Signal()
        queues = Array(Signal(ControlQueue, name=f"queue{n}") for n in range(config.functions))
        turn = Signal(range(config.functions))  # the ordinal of the function that is served
        queue = queues[turn]
        job = Signal(ControlJob)  # what the parts work on
        post, posting = self._post(m), Signal()  # ``posting``: it is at work, and not a request
        m.d.comb += [
            self.doorbell.ready.eq(1),
            job.function.eq(function_of(turn)),
            job.queue.eq(card_number(config, "queues", turn, Const(CONTROL_QUEUE, 16))),
            job.position.eq(queue.position),
            job.known.eq(queue.known),
            job.used_index.eq(queue.used_index),
            job.length.eq(self.response_length),
            self.pending.eq(pending),
        ]
        events = Array(Signal(16, name=f"events{n}") for n in range(config.functions))
        behind = m.submodules.walker.count  # positions of a chain
        with m.If(posting):
            ordinal = ordinal_in(config, "queues", post.queue)
            at = Mux(post.look, post.position, events[ordinal])
            m.d.comb += [
                job.post.eq(1),
                job.function.eq(function_of(ordinal)),
                job.queue.eq(post.queue),
                # The index is read anew.
                *(job[name].eq(at) for name in ("position", "known", "used_index")),
                job.length.eq(EVENT.size),
            ]
            with m.If(m.submodules.used.done):
                m.d.sync += events[ordinal].eq(at + behind)
        self._drive(m, job, chain)
        self._split(m, chain)
        self._request_words(m, chain)
        with m.If(self.error.ready):
            m.d.sync += self.error.valid.eq(0)
        in_reset = self._resets(m, (queues, events), turn, job)
        wanted = Signal(config.functions)
        m.d.comb += [
            wanted[n].eq(one.wake & ~one.stopped & ~self.resetting[n])
            for n, one in enumerate(queues)
        ]
        ring, output = m.submodules.ring, m.submodules.output
        with m.FSM(name="state"):
            # IDLE: waits for a doorbell of the function whose turn it is or for the firmware, or
            # forgets its queue that is reset; ends with either of the first.
            with m.State("IDLE"):
                m.d.comb += self.idle.eq((wanted == 0) & ~output.o.valid)
                with m.If(in_reset):
                    m.d.comb += self.queue_reset.ready.eq(1)
                with m.Elif(self.error.valid):
                    pass  # its queue is that of this turn
                if config.events:
                    with m.Elif(post.start):
                        m.d.sync += [posting.eq(1), post.success.eq(0)]
                        m.next = "POST"
                with m.Elif(wanted.bit_select(turn, 1)):
                    m.d.comb += self.queue_read.enable.eq(1)
                    m.d.sync += queue.wake.eq(0)
                    m.next = "RING"
                with m.Elif(wanted != 0):
                    m.d.sync += turn.eq(self._after(turn))
            # POST: reads the row of the queue that the firmware names; one cycle.
            with m.State("POST"):
                m.d.comb += self.queue_read.enable.eq(1)
                m.next = "RING"
            # RING: asks for the next chain; ends when the ring takes that.
            with m.State("RING"):
                m.d.comb += ring.i.valid.eq(1)
                with m.If(ring.i.ready):
                    m.next = "HEAD"
            # HEAD: waits for its head; ends with it, or when there is none, or only the index was
            # asked for.
            with m.State("HEAD"):
                m.d.comb += ring.o.ready.eq(1)
                m.d.sync += [
                    chain.head.eq(ring.o.payload.head),
                    chain.cause.eq(ring.o.payload.cause),
                ]
                with m.If(job.post):
                    m.d.sync += post.available.eq(ring.o.payload.available)
                with m.Else():
                    m.d.sync += queue.known.eq(ring.o.payload.available)
                with m.If(ring.o.valid):
                    broken = ring.o.payload.status == FetchStatus.QUEUE_ERROR
                    with m.If(job.post & post.look):
                        m.d.sync += post.success.eq(~broken)
                        m.next = "POSTED"
                    with m.Elif(broken):
                        m.next = "ERROR"
                    with m.Elif(ring.o.payload.status == FetchStatus.OK):
                        m.next = "WALK"
                    with m.Else():
                        self._end(m, job)
            # POSTED: tells the firmware that ``post`` is done; ends when an error of its queue is
            # known.
            with m.State("POSTED"):
                with m.If(~self.error.valid):
                    m.d.comb += post.done.eq(1)
                    m.d.sync += posting.eq(0)
                    m.next = "IDLE"
            self._serve(m, (queue, job, post, behind), chain, pending, turn)
        with m.If(self.doorbell.valid):
            m.d.sync += queues[ordinal_in(config, "queues", self.doorbell.payload.queue)].wake.eq(1)
        return m

    def _post(self, m: Module):
        """The firmware's operations; without events there never is one."""
        if self._config.events:
            return self.post
        return QueuePost().flip().create()

    def _end(self, m: Module, job) -> None:
        """Nothing more comes of the chain at hand."""
        m.next = "IDLE"
        with m.If(job.post):
            m.next = "POSTED"

    def _after(self, turn: Signal) -> Value:
        """The function whose turn is next."""
        return Mux(turn == self._config.functions - 1, 0, turn + 1)

    def _resets(self, m: Module, states, turn: Signal, job) -> Value:
        """Forgets a control or event queue that is reset. Returns whether it is the control queue
        of the function whose turn it is, which waits for the end of a request. Others are reset
        while a request is with the firmware: that may be what it asks for. A queue that is posted
        to waits for the end of that."""
        queues, events = states
        reset, config = self.queue_reset, self._config
        owner = ordinal_in(config, "queues", reset.payload.queue)
        is_control = number_in(config, "queues", reset.payload.queue) == CONTROL_QUEUE
        own = is_control & (owner == turn)
        posted = job.post & (reset.payload.queue == job.queue)
        m.d.comb += reset.ready.eq(~own & ~posted)
        with m.If(reset.valid & reset.ready & is_control):
            m.d.sync += queues[owner].eq(0)
        is_event = number_in(config, "queues", reset.payload.queue) == config.event_queue
        with m.If(reset.valid & reset.ready & is_event & ~reset.payload.keep_index):
            m.d.sync += events[owner].eq(0)
        return reset.valid & own

    def _connect(self, m: Module) -> None:
        """Connects the parts to the host."""
        config, stream_id = self._config, self._stream_id
        m.submodules.ring = ring = AvailRing(config=config, stream_id=stream_id)
        m.submodules.walker = walker = Walker(config=config, chains=True)
        m.submodules.element = element = ElementReader(config=config, limit=self._limit)
        m.submodules.writer = writer = ResponseWriter(
            config=config, limit=MAILBOX_BYTES, stream_id=stream_id
        )
        m.submodules.used = used = UsedWriter(config=config, stream_id=stream_id)
        m.submodules.share = share = ReadShare(width=config.width, clients=4)
        # What is written passes a register, and nothing is read before it has left that. What is
        # read passes one too: the choice among all that read stands behind it.
        m.submodules.output = output = Stage(shape=write_beat(config.width))
        m.submodules.asking = asking = Register(shape=ReadRequest)
        connect(m, output.o, flipped(self.write_client.beat))
        asked = share.read_client
        m.d.comb += [
            asking.i.payload.eq(asked.req.payload),
            asking.i.valid.eq(asked.req.valid & ~output.o.valid),
            asked.req.ready.eq(asking.i.ready & ~output.o.valid),
        ]
        connect(m, asking.o, flipped(self.read_client.req))
        connect(m, asked.rsp, flipped(self.read_client.rsp))
        for i, user in enumerate((ring, walker, element, used)):
            connect(m, user.read_client, getattr(share, f"client{i}"))
        connect(m, used.interrupt, flipped(self.interrupt))
        with m.If(writer.writing):
            connect_stream(m, writer.write_client.beat, output.i)
        with m.Elif(ring.write_client.beat.valid):
            connect_stream(m, ring.write_client.beat, output.i)
        with m.Else():
            connect_stream(m, used.write_client.beat, output.i)

    def _split(self, m: Module, chain) -> None:
        """Readable buffers to the element, writable ones to the response writer. The element ends
        at the first writable buffer, or with the chain."""
        walker, element, writer = m.submodules.walker, m.submodules.element, m.submodules.writer
        segment = walker.o.payload
        ends = segment.writable & chain.reading
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
                m.d.sync += chain.reading.eq(0)
        with m.Elif(chain.reading):
            m.d.comb += [
                element.i.valid.eq(walker.o.valid),
                walker.o.ready.eq(element.i.ready),
            ]
            with m.If(element.i.valid & element.i.ready & segment.last):
                m.d.sync += chain.reading.eq(0)
        with m.Else():
            m.d.comb += [
                writer.i.valid.eq(walker.o.valid),
                walker.o.ready.eq(writer.i.ready),
            ]
        m.d.sync += chain.done.eq(chain.ended)  # the writer's total is there
        with m.If(walker.o.valid & walker.o.ready & segment.last):
            m.d.sync += chain.ended.eq(1)
            with m.If(segment.cause != QueueErrorCause.NONE):
                m.d.sync += chain.cause.eq(segment.cause)

    def _place(self, chain) -> Value:
        """The word of 64 bits of the request that comes next, of as many as there may be."""
        return Cat(chain.place, self._more) if len(self._more) else chain.place

    def _request_words(self, m: Module, chain) -> None:
        """Words of the request, half a word of the element at a time."""
        element = m.submodules.element
        word, place = element.o.payload, self._place(chain)
        m.d.comb += [
            self.request.index.eq(Cat(chain.upper, place)),
            self.request.row.eq(Mux(chain.upper, word.data[32:], word.data[:32])),
            self.request.enable.eq(element.o.valid & (word.count != 0)),
            element.o.ready.eq(chain.upper | (word.count == 0)),
        ]
        with m.If(self.request.enable):
            m.d.sync += chain.upper.eq(~chain.upper)
            with m.If(chain.upper):
                m.d.sync += place.eq(place + 1)
        with m.If(element.o.valid & element.o.ready & word.last):
            m.d.sync += [
                chain.element_done.eq(1),
                self.request_length.eq(Mux(element.length > 0xFFFF, 0xFFFF, element.length[:16])),
            ]
            with m.If(
                (element.cause != QueueErrorCause.NONE) & (chain.cause == QueueErrorCause.NONE)
            ):
                m.d.sync += chain.cause.eq(element.cause)

    def _drive(self, m: Module, job, chain) -> None:
        """Gives the job and its queue's row to the parts."""
        row = self.queue_read.row
        ring, walker, writer = m.submodules.ring, m.submodules.walker, m.submodules.writer
        element, used, output = m.submodules.element, m.submodules.used, m.submodules.output
        m.d.comb += [
            self.function.eq(job.function),
            self.queue_read.index.eq(job.queue),
            ring.i.payload.function.eq(job.function),
            ring.i.payload.queue.eq(job.queue),
            ring.i.payload.row.eq(row),
            ring.i.payload.position.eq(job.position),
            ring.i.payload.known.eq(job.known),
            walker.i.payload.function.eq(job.function),
            walker.i.payload.desc.eq(row.desc),
            walker.i.payload.size_log2.eq(row.size_log2),
            walker.i.payload.rules.eq(row.rules),
            walker.i.payload.head.eq(chain.head),
            walker.i.payload.limit.eq(MAX_CHAIN),
            walker.i.payload.readable.eq(~job.post),
            walker.i.payload.writable.eq(1),
            element.function.eq(job.function),
            writer.function.eq(job.function),
            writer.length.eq(job.length),
            self.response.index.eq(Cat(writer.response.index, job.post)),
            self.response.enable.eq(writer.response.enable),
            writer.response.row.eq(self.response.row),
            used.accepted.eq(~output.o.valid),
            used.i.payload.function.eq(job.function),
            used.count.eq(walker.count),
            used.i.payload.ring.size_log2.eq(row.size_log2),
            used.i.payload.ring.rules.eq(row.rules),
            used.i.payload.ring.driver.eq(row.driver),
            used.i.payload.ring.device.eq(used_base(self._config, row)),
            used.i.payload.ring.vector.eq(row.vector),
            used.i.payload.ring.queue.eq(job.queue),
            used.i.payload.index.eq(job.used_index),
            used.i.payload.head.eq(Mux(is_packed(self._config, row.rules), walker.id, chain.head)),
            used.i.payload.length.eq(writer.written),
            used.i.payload.notify.eq(row.vector != NO_VECTOR),
            self.error.payload.queue.eq(job.queue),
            self.error.payload.cause.eq(chain.cause),
        ]

    def _serve(self, m: Module, work, chain, pending: Signal, turn: Signal) -> None:
        """From a chain to its return."""
        queue, job, post, behind = work
        walker, writer, used = m.submodules.walker, m.submodules.writer, m.submodules.used
        # WALK: starts the walk along the chain; ends when the walker takes it.
        with m.State("WALK"):
            m.d.comb += [walker.i.valid.eq(1), writer.clear.eq(1)]
            m.d.sync += [
                chain.reading.eq(1),
                chain.ended.eq(0),
                chain.done.eq(0),
                chain.element_done.eq(0),
                chain.upper.eq(0),
                self._place(chain).eq(0),
            ]
            with m.If(walker.i.ready):
                m.next = "FETCH"
        # FETCH: waits until request and buffers are known; ends with the request, or for an event
        # when its buffers are known. Nobody waits for one whose function is in reset by now.
        with m.State("FETCH"):
            m.d.sync += self.writable_length.eq(writer.total)
            with m.If(chain.done & chain.element_done):
                with m.If(of_function(self._config, self.resetting, job.function)):
                    self._end(m, job)
                with m.Elif(chain.cause != QueueErrorCause.NONE):
                    m.next = "ERROR"
                with m.Elif(writer.total == 0):
                    m.next = "RETURN"
                with m.Else():
                    m.d.sync += pending.eq(~job.post)
                    with m.If(~job.post):
                        increment(m, self.requests)
                    m.next = "FIRMWARE"
        # FIRMWARE: waits for the firmware's response; ends with it. An event is there.
        with m.State("FIRMWARE"):
            with m.If(self.done | job.post):
                m.d.sync += pending.eq(0)
                m.d.comb += writer.start.eq(1)
                m.next = "RESPONSE"
        # RESPONSE: writes it to the driver's buffers; ends with its last byte.
        with m.State("RESPONSE"):
            with m.If(writer.done):
                m.next = "RETURN"
        # RETURN: returns the chain; ends when the used element is on its way.
        with m.State("RETURN"):
            m.d.comb += used.i.valid.eq(1)
            with m.If(used.i.ready):
                m.next = "RETURNED"
        # RETURNED: waits until the driver can see it; ends then. Another function goes first now.
        with m.State("RETURNED"):
            with m.If(used.done & job.post):
                m.d.sync += post.success.eq(1)
                m.next = "POSTED"
            with m.Elif(used.done):
                m.d.sync += [
                    queue.used_index.eq(queue.used_index + behind),
                    queue.position.eq(queue.position + behind),
                    queue.wake.eq(1),
                    turn.eq(self._after(turn)),
                ]
                m.next = "IDLE"
        # ERROR: stops the queue and tells why; one cycle.
        with m.State("ERROR"):
            m.d.sync += self.error.valid.eq(1)
            with m.If(~job.post):
                m.d.sync += queue.stopped.eq(1)
            self._end(m, job)
