"""One WQE: from a position of its queue to its decoded form."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import FetchRequest, FetchStatus, QueueErrorCause, SendWqe
from hdl.ports.rows import QueueRow

from .chain import ChainLane
from .decode import Slot
from .ring import AvailRing

__all__ = ["FetchLane", "FetchJob", "FetchAnswer"]


class FetchJob(data.Struct):
    """A request and the row of its queue."""

    request: FetchRequest
    row: QueueRow
    receive: 1  # a receive WQE


class FetchAnswer(data.Struct):
    """``cause`` with QUEUE_ERROR, ``error`` (a WC status) with WQE_ERROR; ``wqe`` with both OK and
    WQE_ERROR (what could be read of it). A receive WQE is ``num_sge``, ``wr_id`` and ``length``."""

    status: FetchStatus
    cause: QueueErrorCause
    error: 8
    available: 16
    head: 16
    wqe: SendWqe


class FetchLane(wiring.Component):
    """Fetches and decodes one WQE at a time: an AvailRing and a ChainLane.

    Members: ``i`` jobs; ``slot`` the slots of the WQE's line; ``o`` the answer, after the last
    slot has been taken; ``flush`` forgets ring entries read ahead; ``event_idx``, ``indirect``;
    ``read_client0`` ring, ``read_client1`` descriptors, ``read_client2`` buffers; ``write_client``
    avail_event.
    Latency: host reads for avail index, ring entries (neither when at hand), descriptors and
    bytes, one after the other, plus about 25 cycles and one cycle per eight bytes.
    Errors: of AvailRing and ChainLane.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        read = Out(ReadClient(config.width))
        super().__init__(
            {
                "i": In(stream.Signature(FetchJob)),
                "slot": Out(stream.Signature(Slot)),
                "o": Out(stream.Signature(FetchAnswer)),
                "flush": In(1),
                "event_idx": In(1),
                "indirect": In(1),
                "read_client0": read,
                "read_client1": read,
                "read_client2": read,
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = AvailRing(config=self._config)
        m.submodules.chain = chain = ChainLane(config=self._config)
        connect(m, ring.read_client, flipped(self.read_client0))
        connect(m, chain.read_client0, flipped(self.read_client1))
        connect(m, chain.read_client1, flipped(self.read_client2))
        connect(m, ring.write_client, flipped(self.write_client))
        connect(m, chain.slot, flipped(self.slot))

        job, answer = Signal(FetchJob, reset_less=True), Signal(FetchAnswer, reset_less=True)
        request, row = job.request, job.row
        m.d.comb += [
            ring.flush.eq(self.flush),
            ring.event_idx.eq(self.event_idx),
            ring.i.payload.function.eq(request.function),
            ring.i.payload.queue.eq(request.queue),
            ring.i.payload.row.eq(row),
            ring.i.payload.position.eq(request.position),
            ring.i.payload.known.eq(request.known),
            chain.indirect.eq(self.indirect),
            chain.i.payload.function.eq(request.function),
            chain.i.payload.desc.eq(row.desc),
            chain.i.payload.size_log2.eq(row.size_log2),
            chain.i.payload.head.eq(answer.head),
            chain.i.payload.receive.eq(job.receive),
            self.o.payload.eq(answer),
        ]
        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [job.eq(self.i.payload), answer.error.eq(0)]
                with m.If(self.i.valid):
                    m.next = "RING"
            with m.State("RING"):
                m.d.comb += ring.i.valid.eq(1)
                with m.If(ring.i.ready):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += ring.o.ready.eq(1)
                m.d.sync += [
                    answer.status.eq(ring.o.payload.status),
                    answer.cause.eq(ring.o.payload.cause),
                    answer.available.eq(ring.o.payload.available),
                    answer.head.eq(ring.o.payload.head),
                ]
                with m.If(ring.o.valid):
                    with m.If(ring.o.payload.status == FetchStatus.OK):
                        m.next = "CHAIN"
                    with m.Else():
                        m.next = "ANSWER"
            with m.State("CHAIN"):
                m.d.comb += chain.i.valid.eq(1)
                with m.If(chain.i.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += chain.o.ready.eq(1)
                m.d.sync += [
                    getattr(answer, name).eq(getattr(chain.o.payload, name))
                    for name in ("status", "cause", "error", "wqe")
                ]
                with m.If(chain.o.valid):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
