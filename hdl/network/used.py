"""Used elements of one direction: chains go back, and the driver is told."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_pci import AvailFlags
from hdl.common.address import OFFSET_BITS, add_high, add_low, mask
from hdl.common.tables import TableRead
from hdl.config import FUNCTION_NET, NicConfig
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.jobs import Interrupt
from hdl.ports.rows import QueueRow
from hdl.queues.ring.read import BlockReader
from hdl.queues.ring.types import INDEX_OFFSET, NO_VECTOR, used_element, used_event

from .types import PAIR_BITS, Returned

__all__ = ["UsedElements"]

#: Elements behind which the index is written, though more wait.
BATCH = 16


class _Notice(data.Struct):
    """The used index of a queue went from ``old`` to ``new``: does the driver want to know?"""

    addr: 64  # of its flags, or of used_event
    event_idx: 1
    vector: 16
    old: 16
    new: 16


class _Work:
    """What is at hand; ``used`` and ``told`` are of each queue."""

    def __init__(self, pairs: int):
        self.used = Array(Signal(16, name=f"used{n}") for n in range(pairs))
        self.told = Array(Signal(16, name=f"told{n}") for n in range(pairs))  # noticed up to there
        self.pending = Signal(pairs)  # the driver is to be noticed of these queues,
        self.asked = Signal(PAIR_BITS)  # of this one first
        self.pair, self.known = Signal(PAIR_BITS), Signal()  # ``row`` is that of this queue
        self.row = Signal(QueueRow, reset_less=True)
        self.item = Signal(Returned, reset_less=True)
        self.same = Signal()  # the next chain is of this queue too
        self.dirty = Signal(range(BATCH * 4))  # elements behind its index
        self.whole = Signal(init=1)  # the last element was the last of its frame
        self.publishing, self.ended = Signal(), Signal()  # the index is written, or is to be
        self.addr, self.carry = Signal(64, reset_less=True), Signal()
        self.slot, self.place = Signal(16, reset_less=True), Signal(OFFSET_BITS)
        self.notice, self.noticing = Signal(_Notice, reset_less=True), Signal()
        self.notices, self.tells = Signal(), Signal()  # one is to be given; it is looked up


class UsedElements(wiring.Component):
    """Writes used elements, the index behind a batch of them, and raises interrupts.

    Spec: Virtio 1.2, 2.7.7, 2.7.8.
    Members: ``i`` chains, those of a frame one behind the other; ``forget`` (a cycle, with
    ``idle``): the queue of ``forget_pair`` begins anew; ``rows`` the queues' rows; ``write_client``
    bursts of 8 bytes at most, each of which has been accepted by the write engine when it is taken;
    ``interrupt``.
    The index is written when nothing more waits, or the next chain is another queue's, or behind
    ``BATCH`` elements, but never between the chains of a frame. Then the driver's flags, or
    used_event, are read for all that was written since the last time, one queue at a time. So a
    driver that is interrupted often is so once a host read, whatever comes meanwhile.
    Latency: 5 cycles to the element, 4 more to the index, a host read to the interrupt.
    Throughput: an element in 5 cycles. Errors: a failed read counts as not suppressed.
    """

    def __init__(self, *, config: NicConfig, writable: bool):
        self._config, self._writable, self._pairs = config, writable, config.network
        super().__init__(
            {
                "i": In(stream.Signature(Returned)),
                "forget": In(1),
                "forget_pair": In(PAIR_BITS),
                "idle": Out(1),
                "rows": Out(TableRead(16, QueueRow)),
                "interrupt": Out(stream.Signature(Interrupt)),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        work = _Work(self._pairs)
        beat, next_pair = self.write_client.beat.payload, Signal(PAIR_BITS)
        for n in reversed(range(self._pairs)):
            with m.If(work.pending[n]):
                m.d.comb += work.asked.eq(n)
        more = self.i.valid & work.same & (work.dirty < BATCH) & ~work.notices
        m.d.comb += [
            work.same.eq(work.known & (self.i.payload.pair == work.pair)),
            work.notices.eq(work.pending.any() & ~work.noticing),
            work.ended.eq(work.whole & (work.dirty != 0) & ~more),
            work.place.eq(Mux(work.publishing, INDEX_OFFSET, used_element(work.slot))),
            next_pair.eq(Mux(work.tells, work.asked, self.i.payload.pair)),
            self.rows.index.eq(next_pair << 1 | (0 if self._writable else 1)),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(FUNCTION_NET),
            beat.addr.eq(work.addr),
            beat.first.eq(1),
            beat.last.eq(1),
            beat.data.eq(Cat(work.item.head, Const(0, 16), work.item.length, Const(0, 18))),
            beat.keep.eq(0xFF),
        ]
        m.d.sync += work.slot.eq(work.used[work.pair] & mask(work.row.size_log2))
        with m.If(work.publishing):
            m.d.comb += [beat.data.eq(work.used[work.pair]), beat.keep.eq(0b11)]
        with m.FSM(name="state") as fsm:
            self._write(m, work)
            self._tell(m, work)
        self._notice(m, work.notice, work.noticing)
        with m.If(self.forget):
            m.d.sync += [
                work.used[self.forget_pair].eq(0),
                work.told[self.forget_pair].eq(0),
                work.known.eq(0),
            ]
        busy = self.i.valid | (work.dirty != 0) | work.pending.any() | work.noticing
        m.d.sync += self.idle.eq(fsm.ongoing("IDLE") & ~busy)
        return m

    def _write(self, m: Module, work: _Work) -> None:
        """An element, or an index."""
        # IDLE: chooses what is next: the index, a notice, or an element; ends with it.
        with m.State("IDLE"):
            m.d.sync += work.publishing.eq(0)
            with m.If(work.ended):
                m.d.sync += work.publishing.eq(1)
                m.next = "PLACE"
            with m.Elif(work.whole & work.notices):
                m.d.comb += [work.tells.eq(1), self.rows.enable.eq(1)]
                m.d.sync += work.pair.eq(work.asked)
                m.next = "NOTICE_ROW"
            with m.Elif(self.i.valid):
                m.d.comb += [self.i.ready.eq(1), self.rows.enable.eq(~work.same)]
                m.d.sync += [work.item.eq(self.i.payload), work.pair.eq(self.i.payload.pair)]
                m.next = "ROW"
                with m.If(work.same):
                    m.next = "PLACE"
        # ROW: keeps the row of the queue; one cycle.
        with m.State("ROW"):
            m.d.sync += [work.row.eq(self.rows.row), work.known.eq(1)]
            m.next = "SLOT"
        # SLOT: works out the element's place; one cycle.
        with m.State("SLOT"):
            m.next = "PLACE"
        # PLACE: adds the place to the address of the ring; one cycle.
        with m.State("PLACE"):
            add_low(m, work.addr, work.carry, work.row.device, work.place)
            m.next = "HIGH"
        # HIGH: adds the carry; one cycle.
        with m.State("HIGH"):
            add_high(m, work.addr, work.carry)
            m.next = "WRITE"
        # WRITE: writes the element, or the index; ends when that is taken.
        with m.State("WRITE"):
            m.d.comb += self.write_client.beat.valid.eq(1)
            with m.If(self.write_client.beat.ready):
                m.next = "IDLE"
                with m.If(work.publishing):
                    m.d.sync += work.dirty.eq(0)
                    m.d.sync += work.pending.bit_select(work.pair, 1).eq(
                        work.row.vector != NO_VECTOR
                    )
                    with m.If(work.row.vector == NO_VECTOR):
                        m.d.sync += work.told[work.pair].eq(work.used[work.pair])
                with m.Else():
                    m.d.sync += [
                        work.used[work.pair].eq(work.used[work.pair] + 1),
                        work.dirty.eq(work.dirty + ~work.dirty.all()),
                        work.whole.eq(work.item.last),
                    ]

    def _tell(self, m: Module, work: _Work) -> None:
        """The driver is to be noticed of a queue."""
        # NOTICE_ROW: keeps the row of a queue that the driver is to be noticed of; one cycle.
        with m.State("NOTICE_ROW"):
            m.d.sync += [work.row.eq(self.rows.row), work.known.eq(1)]
            m.next = "NOTICE_PLACE"
        # NOTICE_PLACE: adds the place of what the driver says of interrupts; one cycle.
        with m.State("NOTICE_PLACE"):
            event = Mux(work.row.rules.event_idx, used_event(work.row.size_log2), 0)
            add_low(m, work.addr, work.carry, work.row.driver, event)
            m.next = "NOTICE_HIGH"
        # NOTICE_HIGH: adds the carry; one cycle.
        with m.State("NOTICE_HIGH"):
            add_high(m, work.addr, work.carry)
            m.next = "NOTICE"
        # NOTICE: hands the notice over; one cycle.
        with m.State("NOTICE"):
            m.d.sync += [
                work.noticing.eq(1),
                work.notice.addr.eq(work.addr),
                work.notice.event_idx.eq(work.row.rules.event_idx),
                work.notice.vector.eq(work.row.vector),
                work.notice.old.eq(work.told[work.pair]),
                work.notice.new.eq(work.used[work.pair]),
                work.told[work.pair].eq(work.used[work.pair]),
                work.pending.bit_select(work.pair, 1).eq(0),
            ]
            m.next = "IDLE"

    def _notice(self, m: Module, notice: Value, noticing: Signal) -> None:
        """Whether the driver wants an interrupt for a notice, and the interrupt."""
        m.submodules.reader = reader = BlockReader(width=self._config.width, size=8)
        connect(m, reader.read_client, flipped(self.read_client))
        behind, step = Signal(16, reset_less=True), Signal(16, reset_less=True)
        quiet, failed = Signal(reset_less=True), Signal(reset_less=True)
        said = Signal(16, reset_less=True)
        m.d.comb += [
            reader.i.payload.function.eq(FUNCTION_NET),
            reader.i.payload.addr.eq(notice.addr),
            reader.i.payload.length.eq(2),
            self.interrupt.payload.function.eq(FUNCTION_NET),
            self.interrupt.payload.vector.eq(notice.vector),
        ]
        with m.FSM(name="notice"):
            # ASK: waits for a notice, and has read what the driver says; ends when that is taken.
            with m.State("ASK"):
                m.d.comb += reader.i.valid.eq(noticing)
                with m.If(reader.i.valid & reader.i.ready):
                    m.next = "WAIT"
            # WAIT: waits for it; ends when it comes.
            with m.State("WAIT"):
                m.d.comb += reader.o.ready.eq(1)
                m.d.sync += [said.eq(reader.o.payload.data), failed.eq(reader.o.payload.error)]
                with m.If(reader.o.valid):
                    m.next = "STEP"
            # STEP: how far the index went, and how far behind the event it is; one cycle.
            with m.State("STEP"):
                m.d.sync += [
                    step.eq(notice.new - notice.old),
                    behind.eq(notice.new + ~said),  # less the event and one
                ]
                m.next = "DECIDE"
            # DECIDE: compares the two (2.7.7.2), or looks at the flag; one cycle.
            with m.State("DECIDE"):
                m.d.sync += quiet.eq(
                    ~failed
                    & Mux(
                        notice.event_idx,
                        behind >= step,
                        (said & AvailFlags.NO_INTERRUPT) != 0,
                    )
                )
                m.next = "RAISE"
            # RAISE: gives the interrupt out, if it is wanted; ends when it is taken.
            with m.State("RAISE"):
                m.d.comb += self.interrupt.valid.eq(~quiet)
                with m.If(quiet | self.interrupt.ready):
                    m.d.sync += noticing.eq(0)
                    m.next = "ASK"
