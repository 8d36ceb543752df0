"""The available ring of a split virtqueue: from a position to the head of its chain."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.address import mask
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.jobs import FetchStatus, QueueErrorCause

from .index import AvailIndex, named_index
from .packed import is_packed
from .plain import PlainHeads
from .read import BlockReader
from .types import RingJob, RingResult

__all__ = ["AvailRing"]


class AvailRing(wiring.Component):
    """Finds the head of the chain at one position of a queue's available ring, one at a time.

    Spec: Virtio 1.2, 2.7.6 (available ring), 2.7.10 (notification suppression).
    Members: ``i`` jobs, ``o`` one result per job.
    The index is read only when ``known`` does not say that something is there (nor does it when it
    is more than the queue's size ahead). With EVENT_IDX ``avail_event`` is written before EMPTY
    (see AvailIndex). In a ``packed`` ring the head is the position's place, and no entry is read.
    Latency: a host read for the index and one for the entry (PlainHeads), each with 9 cycles more.
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
        config, width = self._config, self._config.width
        m.submodules.reader = reader = BlockReader(width=width, size=8)
        m.submodules.index = index = AvailIndex(config=config, stream_id=self._stream_id)
        m.submodules.heads = heads = PlainHeads(config=config, kept=True)
        connect(m, index.block, reader.i)
        connect(m, reader.o, index.block_data)
        connect(m, index.write_client, flipped(self.write_client))
        counting = Signal()  # the index reads, else the heads
        with m.If(counting):
            connect(m, reader.read_client, flipped(self.read_client))
        with m.Else():
            connect(m, heads.read_client, flipped(self.read_client))

        job = Signal(RingJob, reset_less=True)
        result = Signal(RingResult, reset_less=True)
        row, asked = job.row, heads.i.payload
        ahead = Signal(16, reset_less=True)  # how far ``known`` is
        there = Signal()  # by which the position is available
        m.d.comb += [
            self.o.payload.eq(result),
            *named_index(config, index.i.payload, job.function, row, job.position),
            asked.request.function.eq(job.function),
            asked.request.position.eq(job.position),
            asked.size_log2.eq(row.size_log2),
            asked.driver.eq(row.driver),
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
            # PLACE: works out the place in the ring, which is the head of a packed one; one cycle.
            with m.State("PLACE"):
                m.d.sync += [
                    ahead.eq(job.known - job.position),
                    result.head.eq(job.position & mask(row.size_log2)),
                ]
                m.next = "WEIGH"
            # WEIGH: judges whether something is known to be there; one cycle.
            with m.State("WEIGH"):
                m.d.sync += there.eq((ahead != 0) & (ahead <= (1 << row.size_log2)))
                m.next = "LOOK"
            # LOOK: goes to the entry, to the avail index, or to the answer; one cycle.
            with m.State("LOOK"):
                m.next = "ENTRY"
                with m.If(~row.enabled):
                    answer(FetchStatus.EMPTY)
                with m.Elif(~there):
                    m.next = "INDEX"
                with m.Elif(is_packed(config, row.rules)):
                    answer(FetchStatus.OK)
            # INDEX: has the avail index read; ends when that is taken.
            with m.State("INDEX"):
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
                    with m.If(wanted & ~is_packed(config, row.rules)):
                        m.next = "ENTRY"
            # ENTRY: has the entry read; ends when that is taken.
            with m.State("ENTRY"):
                m.d.comb += heads.i.valid.eq(1)
                with m.If(heads.i.ready):
                    m.next = "ENTRY_WAIT"
            # ENTRY_WAIT: waits for the head that it says; ends when that comes.
            with m.State("ENTRY_WAIT"):
                m.d.comb += heads.o.ready.eq(1)
                m.d.sync += result.head.eq(heads.o.payload.head)
                with m.If(heads.o.valid):
                    m.next = "HEAD"
                    with m.If(heads.o.payload.failed):
                        answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.HOST_READ)
            # HEAD: checks the head; one cycle.
            with m.State("HEAD"):
                answer(FetchStatus.OK)
                with m.If((result.head & ~mask(row.size_log2)) != 0):
                    answer(FetchStatus.QUEUE_ERROR, QueueErrorCause.DESC_INDEX)
            # ANSWER: answers; ends when that is taken.
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
