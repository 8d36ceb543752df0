"""The available ring of a split virtqueue: from a position to the head of its chain."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.abi.virtio_pci import AVAIL_ELEMENT
from hdl.common.address import OFFSET_BITS, add_high, add_low, mask
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.jobs import FetchStatus, QueueErrorCause

from .index import AvailIndex, named_index
from .packed import is_packed
from .read import BlockReader
from .types import RING_OFFSET, RingJob, RingResult

__all__ = ["AvailRing"]


class AvailRing(wiring.Component):
    """Finds the head of the chain at one position of a queue's available ring, one at a time.

    Spec: Virtio 1.2, 2.7.6 (available ring), 2.7.10 (notification suppression).
    Members: ``i`` jobs, ``o`` one result per job.
    The index is read only when ``known`` does not say that something is there (nor does it when it
    is more than the queue's size ahead). With EVENT_IDX ``avail_event`` is written before EMPTY
    (see AvailIndex). In a ``packed`` ring the head is the position's place, and no entry is read.
    Latency: a host read for the index and one for the entry, each with 9 cycles more.
    Errors: AVAIL_INDEX (index more than the queue's size ahead), DESC_INDEX (head beyond the
    queue), HOST_READ. A queue that is not enabled is EMPTY.
    """

    def __init__(self, *, config: NicConfig, stream_id: int = STREAM_DATA):
        self._config, self._stream_id = config, stream_id
        super().__init__(
            {
                "i": In(stream.Signature(RingJob)),
                "o": Out(stream.Signature(RingResult)),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BlockReader(width=self._config.width, size=8)
        m.submodules.index = index = AvailIndex(config=self._config, stream_id=self._stream_id)
        connect(m, reader.read_client, flipped(self.read_client))
        connect(m, index.write_client, flipped(self.write_client))

        job = Signal(RingJob, reset_less=True)
        result = Signal(RingResult, reset_less=True)
        counting = Signal()  # the reader is the index's
        row = job.row
        ahead = Signal(16, reset_less=True)  # how far ``known`` is
        there = Signal()  # by which the position is available
        addr, carry = Signal(64, reset_less=True), Signal()
        entry_offset = Signal(OFFSET_BITS, reset_less=True)
        m.d.comb += [
            self.o.payload.eq(result),
            *named_index(self._config, index.i.payload, job.function, row, job.position),
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
                reader.i.payload.length.eq(AVAIL_ELEMENT.size),
            ]

        def answer(status: FetchStatus, cause: QueueErrorCause = QueueErrorCause.NONE) -> None:
            m.d.sync += [result.status.eq(status), result.cause.eq(cause)]
            m.next = "ANSWER"

        with m.FSM(name="state"):
            # IDLE: takes a job; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [job.eq(self.i.payload), result.available.eq(self.i.payload.known)]
                with m.If(self.i.valid):
                    m.next = "PLACE"
            # PLACE: works out where the entry lies in the ring; one cycle.
            with m.State("PLACE"):
                place = job.position & mask(row.size_log2)
                m.d.sync += [
                    entry_offset.eq(RING_OFFSET + AVAIL_ELEMENT.size * place),
                    ahead.eq(job.known - job.position),
                    result.head.eq(place),
                ]
                m.next = "WEIGH"
            # WEIGH: judges whether something is known to be there; one cycle.
            with m.State("WEIGH"):
                m.d.sync += there.eq((ahead != 0) & (ahead <= (1 << row.size_log2)))
                m.next = "LOOK"
            # LOOK: goes to the entry, to the avail index, or to the answer; one cycle.
            with m.State("LOOK"):
                add_low(m, addr, carry, row.driver, entry_offset)
                m.next = "ADDRESS"
                with m.If(~row.enabled):
                    answer(FetchStatus.EMPTY)
                with m.Elif(~there):
                    m.next = "INDEX"
                with m.Elif(is_packed(self._config, row.rules)):
                    answer(FetchStatus.OK)
            # INDEX: has the avail index read; ends when that is taken.
            with m.State("INDEX"):
                add_high(m, addr, carry)
                m.d.comb += index.i.valid.eq(1)
                with m.If(index.i.ready):
                    m.next = "INDEX_WAIT"
            # INDEX_WAIT: waits for it; ends with the answer.
            with m.State("INDEX_WAIT"):
                m.d.comb += [counting.eq(1), index.o.ready.eq(1)]
                m.d.sync += result.available.eq(index.o.payload.available)
                with m.If(index.o.valid):
                    m.d.sync += [
                        result.status.eq(index.o.payload.status),
                        result.cause.eq(index.o.payload.cause),
                    ]
                    m.next = "ANSWER"
                    wanted = index.o.payload.status == FetchStatus.OK
                    with m.If(wanted & ~is_packed(self._config, row.rules)):
                        m.next = "ENTRY"
            # ADDRESS: adds the carry to the address of the entry; one cycle.
            with m.State("ADDRESS"):
                add_high(m, addr, carry)
                m.next = "ENTRY"
            self._entry(m, row, result, answer)
            # ANSWER: answers; ends when that is taken.
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m

    def _entry(self, m: Module, row, result, answer) -> None:
        """The entry is read, and the head that it says is checked."""
        reader, head = m.submodules.reader, Signal(16, reset_less=True)
        # ENTRY: asks for the entry; ends when that is taken.
        with m.State("ENTRY"):
            m.d.comb += reader.i.valid.eq(1)
            with m.If(reader.i.ready):
                m.next = "ENTRY_WAIT"
        # ENTRY_WAIT: waits for it; ends when it comes.
        with m.State("ENTRY_WAIT"):
            m.d.comb += reader.o.ready.eq(1)
            m.d.sync += head.eq(reader.o.payload.data)
            with m.If(reader.o.valid):
                m.next = "HEAD"
                with m.If(reader.o.payload.error):
                    answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.HOST_READ)
        # HEAD: checks the head; one cycle.
        with m.State("HEAD"):
            m.d.sync += result.head.eq(head)
            with m.If((head & ~mask(row.size_log2)) != 0):
                answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.DESC_INDEX)
            with m.Else():
                answer(FetchStatus.OK)
