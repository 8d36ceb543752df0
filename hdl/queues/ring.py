"""The available ring of a split virtqueue: from a position to the head of a chain."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.virtio_pci import AVAIL_ELEMENT
from hdl.common.address import add_high, add_low, mask
from hdl.common.epoch import Epoch
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.jobs import FetchStatus, QueueErrorCause

from .index import AvailIndex
from .read import BlockReader
from .types import RING_OFFSET, RingJob, RingResult

__all__ = ["AvailRing"]

#: Entries read at once: one 32-byte line of the ring.
BATCH = 16
ENTRY_BITS = 8 * AVAIL_ELEMENT.size


class _Line(data.Struct):
    """Entries of positions ``first`` to ``first + count - 1`` of queue ``owner``."""

    entries: BATCH * ENTRY_BITS
    first: 16
    count: range(BATCH + 1)
    owner: 16


class AvailRing(wiring.Component):
    """Finds the head of the chain at one position of a queue's available ring.

    Spec: Virtio 1.2, 2.7.6 (available ring), 2.7.10 (notification suppression).
    Members: ``i`` jobs, ``o`` one result per job; ``event_idx`` 1 when VIRTIO_F_EVENT_IDX was
    negotiated; ``flush`` (a cycle) forgets the entries read ahead.
    The index is read only when neither ``known`` nor the entries at hand say that something is
    there (a ``known`` more than the queue's size ahead says nothing). Up to 16 entries are read at
    once and kept in one of ``lines`` lines, which queues share by number.
    With EVENT_IDX ``avail_event`` is written before EMPTY (see AvailIndex).
    Latency: 5 cycles for an entry at hand; else a host read for the index, one for the entries,
    each with 3 cycles more.
    Errors: AVAIL_INDEX (index more than the queue's size ahead), DESC_INDEX (head beyond the
    queue), HOST_READ. A queue that is not enabled is EMPTY.
    """

    def __init__(self, *, config: NicConfig, lines: int = 16, stream_id: int = STREAM_DATA):
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 2, not {lines!r}")
        self._config, self._width, self._lines = config, config.width, lines
        self._stream_id = stream_id
        super().__init__(
            {
                "i": In(stream.Signature(RingJob)),
                "o": Out(stream.Signature(RingResult)),
                "event_idx": In(1),
                "flush": In(1),
                "read_client": Out(ReadClient(self._width)),
                "write_client": Out(WriteClient(self._width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BlockReader(width=self._width, size=32)
        connect(m, reader.read_client, flipped(self.read_client))
        m.submodules.index = index = AvailIndex(config=self._config, stream_id=self._stream_id)
        connect(m, index.write_client, flipped(self.write_client))
        m.d.comb += index.event_idx.eq(self.event_idx)

        job = Signal(RingJob, reset_less=True)
        result = Signal(RingResult, reset_less=True)
        counting = Signal()  # the reader is the index's
        size = Signal(16)
        row = job.row

        # The line that may hold this queue's entries, and which lines hold any.
        # Read in one state, written in another.
        m.submodules.cache = cache = Ram(shape=_Line, depth=self._lines, forward=False)
        bits = ceil_log2(self._lines)
        line = Signal(_Line, reset_less=True)
        place_of = Signal(bits)
        held = Signal(self._lines)
        entries, first, count, owner = line.entries, line.first, line.count, line.owner
        forget = Signal()
        forgotten = Signal()  # since the read was begun: what it gives is not kept
        # All entries at hand are forgotten in fewer cycles than any queue needs to come back to the
        # same position, which is 65536 chains later.
        m.submodules.epoch = epoch = Epoch()
        m.d.comb += [
            forget.eq(self.flush | epoch.ends),
            # The queues of one kind have numbers in a row, or every second one.
            place_of.eq(job.queue[1:] ^ (job.queue[0] << (bits - 1))),
            cache.read0.index.eq(place_of),
            cache.write.index.eq(place_of),
            cache.write.row.eq(line),
        ]
        offset, head = Signal(16, reset_less=True), Signal(16)  # in the line
        ahead, place = Signal(16, reset_less=True), Signal(16)  # in the ring
        room = Signal(range(BATCH + 1), reset_less=True)
        addr, carry = Signal(64, reset_less=True), Signal()  # of the entry
        entry_offset = Signal(17, reset_less=True)  # bytes from the ring to the entry
        m.d.comb += [
            size.eq(1 << row.size_log2),
            place.eq(job.position & mask(row.size_log2)),
            head.eq(entries.word_select(offset[:4], ENTRY_BITS)),
            self.o.payload.eq(result),
            index.i.payload.function.eq(job.function),
            index.i.payload.driver.eq(row.driver),
            index.i.payload.device.eq(row.device),
            index.i.payload.size_log2.eq(row.size_log2),
            index.i.payload.position.eq(job.position),
            index.block_data.payload.data.eq(reader.o.payload.data),
            index.block_data.payload.error.eq(reader.o.payload.error),
        ]
        with m.If(counting):
            m.d.comb += [
                reader.i.payload.eq(index.block.payload),
                reader.i.valid.eq(index.block.valid),
                index.block.ready.eq(reader.i.ready),
                index.block_data.valid.eq(reader.o.valid),
                reader.o.ready.eq(index.block_data.ready),
            ]
        with m.Else():
            m.d.comb += [
                reader.i.payload.function.eq(job.function),
                reader.i.payload.addr.eq(addr),
                reader.i.payload.length.eq(AVAIL_ELEMENT.size * count),
            ]

        def answer(status: FetchStatus, cause: QueueErrorCause = QueueErrorCause.NONE) -> None:
            m.d.sync += [result.status.eq(status), result.cause.eq(cause)]
            m.next = "ANSWER"

        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    job.eq(self.i.payload),
                    result.available.eq(self.i.payload.known),
                ]
                with m.If(self.i.valid):
                    m.next = "CACHE"
            with m.State("CACHE"):
                m.d.comb += cache.read0.enable.eq(1)
                m.d.sync += [
                    entry_offset.eq(RING_OFFSET + AVAIL_ELEMENT.size * place),
                    # Not beyond the line, nor beyond the ring.
                    room.eq(Mux(row.size_log2 < 4, 1 << row.size_log2[:2], BATCH) - place[:4]),
                ]
                m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += [
                    line.eq(cache.read0.row),
                    offset.eq(job.position - cache.read0.row.first),
                    ahead.eq(result.available - job.position),
                ]
                with m.If(~held.bit_select(place_of, 1)):
                    m.d.sync += count.eq(0)
                m.next = "LOOK"
            with m.State("LOOK"):
                with m.If(~row.enabled):
                    answer(FetchStatus.EMPTY)
                with m.Elif((owner == job.queue) & (offset < count)):
                    with m.If((ahead == 0) | (ahead > size)):
                        m.d.sync += result.available.eq(first + count)
                    m.next = "HEAD"
                with m.Elif((ahead == 0) | (ahead > size)):
                    m.next = "INDEX"
                with m.Else():
                    m.next = "BATCH"
            with m.State("INDEX"):
                m.d.comb += index.i.valid.eq(1)
                with m.If(index.i.ready):
                    m.next = "INDEX_WAIT"
            with m.State("INDEX_WAIT"):
                m.d.comb += [counting.eq(1), index.o.ready.eq(1)]
                m.d.sync += result.available.eq(index.o.payload.available)
                with m.If(index.o.valid):
                    m.d.sync += [
                        result.status.eq(index.o.payload.status),
                        result.cause.eq(index.o.payload.cause),
                    ]
                    m.next = "ANSWER"
                    with m.If(index.o.payload.status == FetchStatus.OK):
                        m.next = "FOUND"
            with m.State("FOUND"):
                m.d.sync += ahead.eq(result.available - job.position)
                m.next = "BATCH"
            with m.State("BATCH"):
                # Nor beyond what is available.
                m.d.sync += [
                    owner.eq(job.queue),
                    first.eq(job.position),
                    offset.eq(0),
                    count.eq(Mux(ahead < room, ahead, room)),
                ]
                add_low(m, addr, carry, row.driver, entry_offset)
                m.next = "ADDRESS"
            with m.State("ADDRESS"):
                add_high(m, addr, carry)
                m.next = "ENTRIES"
            with m.State("ENTRIES"):
                m.d.comb += reader.i.valid.eq(1)
                m.d.sync += forgotten.eq(0)
                with m.If(reader.i.ready):
                    m.next = "ENTRIES_WAIT"
            with m.State("ENTRIES_WAIT"):
                m.d.comb += reader.o.ready.eq(1)
                m.d.sync += entries.eq(reader.o.payload.data)
                with m.If(reader.o.valid):
                    with m.If(reader.o.payload.error):
                        answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.HOST_READ)
                    with m.Else():
                        m.next = "KEEP"
            with m.State("KEEP"):
                m.d.comb += cache.write.enable.eq(1)
                m.d.sync += held.bit_select(place_of, 1).eq(~forgotten)
                m.next = "HEAD"
            with m.State("HEAD"):
                m.d.sync += result.head.eq(head)
                with m.If((head & ~mask(row.size_log2)) != 0):
                    answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.DESC_INDEX)
                with m.Else():
                    answer(FetchStatus.OK)
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        with m.If(forget):
            m.d.sync += [held.eq(0), forgotten.eq(1)]
        return m
