"""The chains that the driver makes available in the queues of one direction."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.arbiter import StreamArbiter
from hdl.common.fifo import StreamFifo
from hdl.common.tables import TableRead
from hdl.config import FUNCTION_NET, NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import FetchStatus, QueueErrorCause
from hdl.ports.rows import QueueRow
from hdl.queues.ring.index import AvailIndex, named_index
from hdl.queues.ring.read import BlockReader, ReadShare
from hdl.queues.ring.reader import RingReader
from hdl.queues.ring.walker import Walker

from .types import PAIR_BITS, Broken, Buffer

__all__ = ["ChainSource"]

#: Chains that are looked up at a time; descriptors that are read at a time.
INSIDE, READS = 128, 32
#: The index of a queue is read again when no more chains than these are known.
FEW = 32
#: Chains that a queue may ask for in its turn.
RUN = 8
#: Bytes of the longest buffer that is not walked.
LONGEST = 65536


class ChainSource(wiring.Component):
    """Looks up the chains of receive queues, or of transmit queues, and gives their buffers.

    Spec: Virtio 1.2, 2.7.5, 2.7.6, 2.7.10, 5.1.2 (numbers of the queues).
    Parameters: ``writable``: receive queues, whose buffers the device writes.
    Members: ``doorbell`` (a cycle) and ``doorbell_pair``: a driver's notification; ``start`` (a
    cycle): all queues are looked at. ``may``: a bit for each pair, a chain of it may be looked up;
    ``asked``: one is. ``o`` buffers, those of a chain one behind the other, the chains of a queue
    in its order; ``gone`` a chain of ``gone_pair`` has been given, or is lost. ``error``: a queue
    is broken, and stops. ``forget`` (a cycle, with ``idle``): the queue of ``forget_pair`` begins
    anew. ``hold``: nothing more is looked up. ``rows`` the queues' rows. ``other``: reads of
    somebody else. ``events``: what asks for a notification.
    A queue's avail index is read when a doorbell has come and few chains are known, until nothing
    new is there; then it sleeps until the next doorbell.
    Latency: three host reads behind a doorbell, two with an index at hand. Throughput: a chain of
    one buffer in 4 cycles; a longer one is walked, a host read for each descriptor.
    Errors: as of AvailIndex and Walker; a ring entry that cannot be read is HOST_READ.
    """

    def __init__(self, *, config: NicConfig, writable: bool):
        self._config, self._writable, self._pairs = config, writable, config.network
        super().__init__(
            {
                "doorbell": In(1),
                "doorbell_pair": In(PAIR_BITS),
                "start": In(1),
                "may": In(self._pairs),
                "asked": Out(self._pairs),
                "o": Out(stream.Signature(Buffer)),
                "gone": Out(1),
                "gone_pair": Out(PAIR_BITS),
                "error": Out(stream.Signature(Broken)),
                "forget": In(1),
                "forget_pair": In(PAIR_BITS),
                "hold": In(1),
                "idle": Out(1),
                "rows": Out(TableRead(16, QueueRow)),
                "other": In(ReadClient(config.width)),
                "read_client": Out(ReadClient(config.width)),
                "events": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.reader = reader = RingReader(
            config=config,
            lines=max(2, self._pairs),
            depth=READS,
            least=1,
            most=LONGEST,
            writable=self._writable,
            urgent=False,
        )
        m.submodules.walker = walker = Walker(config=config)
        m.submodules.block = block = BlockReader(width=config.width, size=8)
        m.submodules.index = index = AvailIndex(config=config)
        m.submodules.share = share = ReadShare(width=config.width, clients=5, depth=256)
        m.submodules.errors = errors = StreamArbiter(shape=Broken, inputs=2)
        m.submodules.order = order = StreamFifo(shape=PAIR_BITS, depth=INSIDE)
        connect(m, index.block, block.i)
        connect(m, block.o, index.block_data)
        connect(m, index.write_client, flipped(self.events))
        for n, client in enumerate(
            (reader.read_client0, reader.read_client1, walker.read_client, block.read_client)
        ):
            connect(m, client, getattr(share, f"client{n}"))
        connect(m, flipped(self.other), share.client4)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, errors.o, flipped(self.error))
        m.d.comb += reader.flush.eq(self.forget)

        stopped = Signal(self._pairs)
        resting, polling = self._look(m, stopped)
        waiting = self._give(m, stopped)
        with m.If(self.forget):
            m.d.sync += stopped.bit_select(self.forget_pair, 1).eq(0)
        m.d.sync += self.idle.eq(
            resting & ~polling & waiting & ~order.o.valid & (order.level == 0) & ~errors.o.valid
        )
        return m

    def _look(self, m: Module, stopped: Signal) -> tuple[Value, Value]:
        """Indices are read, and chains are asked for; returns whether no queue is looked at, and
        whether an index is being read."""
        config, pairs = self._config, self._pairs
        reader, index, order = m.submodules.reader, m.submodules.index, m.submodules.order
        position = Array(Signal(16, name=f"position{n}") for n in range(pairs))
        known = Array(Signal(16, name=f"known{n}") for n in range(pairs))
        awake = Signal(pairs)
        pair, polled = Signal(PAIR_BITS), Signal(PAIR_BITS)  # the queue looked at, and that asked
        polling, polls, asks = Signal(), Signal(), Signal()
        row = Signal(QueueRow, reset_less=True)
        turn, asked = Signal(PAIR_BITS), Signal(range(RUN))  # chains of this turn
        settling = Signal(3)  # a queue has been forgotten, and what is known of it is not seen yet
        m.d.sync += settling.eq(settling << 1 | self.forget)
        polls_now, asks_now = self._wanted(m, (position, known), awake, stopped)
        job, request = reader.i.payload, reader.i.payload.request
        m.d.comb += [
            self.rows.index.eq(pair << 1 | (0 if self._writable else 1)),
            request.function.eq(FUNCTION_NET),
            request.qp.eq(pair),
            request.queue.eq(self.rows.index),
            request.position.eq(position[pair]),
            request.known.eq(known[pair]),
            job.size_log2.eq(row.size_log2),
            job.rules.eq(row.rules),
            job.desc.eq(row.desc),
            job.driver.eq(row.driver),
            order.i.payload.eq(pair),
            *named_index(config, index.i.payload, FUNCTION_NET, row, known[pair]),
        ]
        with m.FSM(name="look") as fsm:
            # TURN: looks at one queue after the other; ends when something is to be done for one.
            with m.State("TURN"):
                # The turn rests while nothing waits, so that an idle card does not change.
                with m.If((polls_now | asks_now).any()):
                    m.d.sync += turn.eq(Mux(turn == pairs - 1, 0, turn + 1))
                m.d.sync += [
                    asked.eq(0),
                    pair.eq(turn),
                    polls.eq(polls_now.bit_select(turn, 1) & ~polling),
                    asks.eq(asks_now.bit_select(turn, 1)),
                ]
                with m.If(
                    ~self.hold
                    & ~settling.any()
                    & ((polls_now.bit_select(turn, 1) & ~polling) | asks_now.bit_select(turn, 1))
                ):
                    m.next = "READ"
            # READ: reads its row; one cycle.
            with m.State("READ"):
                m.d.comb += self.rows.enable.eq(1)
                m.next = "ROW"
            # ROW: keeps it; one cycle.
            with m.State("ROW"):
                m.d.sync += row.eq(self.rows.row)
                m.next = "CHOOSE"
            # CHOOSE: begins with the index, unless one is being read; one cycle.
            with m.State("CHOOSE"):
                with m.If(~row.enabled):
                    m.d.sync += awake.bit_select(pair, 1).eq(0)
                    m.next = "REST"
                with m.Elif(polls):
                    m.next = "POLL"
                with m.Else():
                    m.next = "ASK"
            # POLL: has the index read; ends when that is taken.
            with m.State("POLL"):
                m.d.comb += index.i.valid.eq(1)
                with m.If(index.i.ready):
                    m.d.sync += [
                        polling.eq(1),
                        polled.eq(pair),
                        awake.bit_select(pair, 1).eq(0),
                    ]
                    m.next = "REST"
                    with m.If(asks):
                        m.next = "ASK"
            # ASK: has a chain looked up; ends when that is taken.
            with m.State("ASK"):
                m.d.comb += [
                    reader.i.valid.eq(order.i.ready),
                    order.i.valid.eq(reader.i.ready),
                ]
                with m.If(reader.i.ready & order.i.ready):
                    m.d.comb += self.asked.bit_select(pair, 1).eq(1)
                    m.d.sync += position[pair].eq(position[pair] + 1)
                    m.next = "REST"
            # REST: waits until what has changed is seen; one cycle.
            with m.State("REST"):
                m.next = "SEEN"
            # SEEN: it is; one cycle.
            with m.State("SEEN"):
                m.next = "MORE"
            # MORE: asks for another chain of the queue, or looks at the next queue; one cycle.
            with m.State("MORE"):
                m.d.sync += asked.eq(asked + 1)
                m.next = "TURN"
                with m.If(asks_now.bit_select(pair, 1) & ~self.hold & (asked != RUN - 1)):
                    m.next = "ASK"

        self._answer(m, known, awake, polling, polled, stopped)
        with m.If(self.doorbell):
            m.d.sync += awake.bit_select(self.doorbell_pair, 1).eq(1)
        with m.If(self.start):
            m.d.sync += awake.eq(-1)
        with m.If(self.forget):
            m.d.sync += [
                position[self.forget_pair].eq(0),
                known[self.forget_pair].eq(0),
                awake.bit_select(self.forget_pair, 1).eq(0),
            ]
        return fsm.ongoing("TURN"), polling

    def _wanted(self, m: Module, places, awake: Signal, stopped: Signal) -> tuple[Signal, Signal]:
        """Queues whose index is to be read, and queues with a chain to look up, three cycles later:
        ``places``: their positions, and how far they are known."""
        pairs, (position, known) = self._pairs, places
        some, few = Signal(pairs, reset_less=True), Signal(pairs, reset_less=True)
        polls, asks = Signal(pairs, reset_less=True), Signal(pairs, reset_less=True)
        for n in range(pairs):
            ahead = Signal(16, name=f"ahead{n}", reset_less=True)
            m.d.sync += [
                ahead.eq(known[n] - position[n]),
                some[n].eq(known[n] != position[n]),
                few[n].eq(ahead <= FEW),
            ]
        m.d.sync += [polls.eq(awake & few & ~stopped), asks.eq(some & self.may & ~stopped)]
        return polls, asks

    def _answer(self, m: Module, known, awake, polling, polled, stopped) -> None:
        """An index has been read. A queue in which nothing is new sleeps, unless a doorbell came
        meanwhile."""
        index, errors = m.submodules.index, m.submodules.errors
        answer, broken = index.o.payload, errors.i0
        bad = answer.status == FetchStatus.QUEUE_ERROR
        m.d.comb += [
            broken.valid.eq(index.o.valid & bad),
            broken.payload.pair.eq(polled),
            broken.payload.cause.eq(answer.cause),
            index.o.ready.eq(~bad | broken.ready),
        ]
        with m.If(index.o.valid & index.o.ready):
            m.d.sync += polling.eq(0)
            with m.If(answer.status == FetchStatus.OK):
                m.d.sync += [known[polled].eq(answer.available), awake.bit_select(polled, 1).eq(1)]
            with m.If(bad):
                m.d.sync += stopped.bit_select(polled, 1).eq(1)

    def _give(self, m: Module, stopped: Signal) -> Value:
        """Buffers as they are found; returns whether nothing is at hand."""
        reader, walker = m.submodules.reader, m.submodules.walker
        order, errors = m.submodules.order, m.submodules.errors
        element = Signal(reader.o.payload.shape(), reset_less=True)
        pair, given = Signal(PAIR_BITS, reset_less=True), self.o.payload
        cause, inside = Signal(QueueErrorCause, reset_less=True), Signal(reset_less=True)
        segment, chain, broken = walker.o.payload, walker.i.payload, errors.i1
        stops = segment.cause != QueueErrorCause.NONE
        m.d.comb += [
            given.pair.eq(pair),
            given.head.eq(element.head),
            chain.function.eq(element.table.function),
            chain.desc.eq(element.table.desc),
            chain.size_log2.eq(element.table.size_log2),
            chain.rules.eq(element.table.rules),
            chain.head.eq(element.place),
            chain.limit.eq((1 << 32) - 1),
            chain.readable.eq(not self._writable),
            chain.writable.eq(self._writable),
            broken.payload.pair.eq(pair),
            broken.payload.cause.eq(cause),
            self.gone_pair.eq(pair),
        ]
        with m.FSM(name="give") as fsm:
            # WAIT: takes the next chain; ends with it.
            with m.State("WAIT"):
                m.d.comb += [
                    reader.o.ready.eq(order.o.valid),
                    order.o.ready.eq(reader.o.valid),
                ]
                m.d.sync += [element.eq(reader.o.payload), pair.eq(order.o.payload), inside.eq(0)]
                with m.If(reader.o.valid & order.o.valid):
                    m.next = "JUDGE"
            # JUDGE: looks at what it is; one cycle.
            with m.State("JUDGE"):
                m.d.sync += cause.eq(QueueErrorCause.HOST_READ)
                m.next = "GIVE"
                with m.If(stopped.bit_select(pair, 1)):
                    m.next = "GONE"
                with m.Elif(element.failed):
                    m.next = "ERROR"
                with m.Elif(element.odd):
                    m.next = "WALK"
            # GIVE: gives its only buffer; ends when that is taken.
            with m.State("GIVE"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    given.addr.eq(element.addr),
                    given.length.eq(element.length),
                    given.first.eq(1),
                    given.last.eq(1),
                ]
                with m.If(self.o.ready):
                    m.d.comb += self.gone.eq(1)
                    m.next = "WAIT"
            # WALK: has the chain walked; ends when that begins.
            with m.State("WALK"):
                m.d.comb += walker.i.valid.eq(1)
                with m.If(walker.i.ready):
                    m.next = "WALKING"
            # WALKING: gives its buffers; ends with the last one, or with an error.
            with m.State("WALKING"):
                long = segment.length[17:].any()
                m.d.comb += [
                    self.o.valid.eq(walker.o.valid & ~stops),
                    walker.o.ready.eq(self.o.ready | stops),
                    given.addr.eq(segment.addr),
                    given.length.eq(Cat(bit | long for bit in segment.length[:17])),
                    given.first.eq(segment.first),
                    given.last.eq(segment.last),
                ]
                m.d.sync += cause.eq(segment.cause)
                with m.If(walker.o.valid & walker.o.ready):
                    m.d.sync += inside.eq(1)
                    with m.If(stops):
                        m.next = "ERROR"
                    with m.Elif(segment.last):
                        m.next = "GONE"
            # ERROR: stops the queue; ends when that has been told.
            with m.State("ERROR"):
                m.d.comb += broken.valid.eq(1)
                with m.If(broken.ready):
                    m.d.sync += stopped.bit_select(pair, 1).eq(1)
                    m.next = "GONE"
                    with m.If(inside):
                        m.next = "ABORT"
            # ABORT: ends a chain that has begun; ends when that is taken.
            with m.State("ABORT"):
                m.d.comb += [self.o.valid.eq(1), given.broken.eq(1), given.last.eq(1)]
                with m.If(self.o.ready):
                    m.next = "GONE"
            # GONE: the chain has been given; one cycle.
            with m.State("GONE"):
                m.d.comb += self.gone.eq(1)
                m.next = "WAIT"
        return fsm.ongoing("WAIT")
