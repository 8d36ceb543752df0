"""How far send queues reach: the avail indices of several queues at a time."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import FetchRequest, FetchStatus, QueueErrorCause, SendFetched
from hdl.ports.rows import QueueRow

from .index import AvailIndex
from .read import BlockReader, ReadShare

__all__ = ["Polls", "PollJob", "PollAnswer"]


class PollJob(data.Struct):
    """A request for which nothing is known to be available, and the row of its queue."""

    request: FetchRequest
    row: QueueRow


class PollAnswer(data.Struct):
    """The answer: EMPTY, or QUEUE_ERROR with ``cause`` for ``queue``."""

    answer: SendFetched
    queue: 16
    cause: QueueErrorCause


class Polls(wiring.Component):
    """Reads avail indices, ``count`` queues at a time.

    Members: ``i`` jobs; ``o`` one answer per job, in order: EMPTY with the index as ``available``,
    or QUEUE_ERROR; with EVENT_IDX (``event_idx``) ``avail_event`` is written before an answer that
    says that nothing is there (see AvailIndex). A queue that is not enabled is EMPTY at the
    position, without an access. Latency: a host read and 8 cycles, with ``avail_event`` two.
    """

    def __init__(self, *, config: NicConfig, count: int = 4):
        if not 2 <= count <= 16:
            raise ValueError(f"Count must be 2 to 16, not {count!r}")
        self._config, self._count = config, count
        super().__init__(
            {
                "i": In(stream.Signature(PollJob)),
                "o": Out(stream.Signature(PollAnswer)),
                "event_idx": In(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, count = self._config, self._count
        bits = ceil_log2(count)
        m.submodules.share = share = ReadShare(width=config.width, clients=count)
        connect(m, share.read_client, flipped(self.read_client))
        to, from_ = Signal(bits), Signal(bits)

        def following(turn):
            return Mux(turn == count - 1, 0, turn + 1)

        job = self.i.payload
        asked = [Signal(FetchRequest, reset_less=True, name=f"asked{i}") for i in range(count)]
        busy, enabled = Signal(count), Signal(count)
        indices = []
        for i in range(count):
            m.submodules[f"index{i}"] = index = AvailIndex(config=config)
            m.submodules[f"reader{i}"] = reader = BlockReader(width=config.width, size=8)
            connect(m, reader.read_client, getattr(share, f"client{i}"))
            connect(m, index.block, reader.i)
            connect(m, reader.o, index.block_data)
            m.d.comb += [
                index.event_idx.eq(self.event_idx),
                index.i.payload.function.eq(job.request.function),
                index.i.payload.driver.eq(job.row.driver),
                index.i.payload.device.eq(job.row.device),
                index.i.payload.size_log2.eq(job.row.size_log2),
                index.i.payload.position.eq(job.request.position),
                index.i.valid.eq(self.i.valid & self.i.ready & (to == i) & job.row.enabled),
            ]
            indices.append(index)

        with m.If(self.i.valid & self.i.ready):
            with m.Switch(to):
                for i in range(count):
                    with m.Case(i):
                        m.d.sync += asked[i].eq(job.request)
            m.d.sync += [
                busy.bit_select(to, 1).eq(1),
                enabled.bit_select(to, 1).eq(job.row.enabled),
                to.eq(following(to)),
            ]
        request, answer = Signal(FetchRequest), self.o.payload.answer
        found = Signal.like(indices[0].o.payload)
        reads = enabled.bit_select(from_, 1)
        m.d.comb += [
            self.i.ready.eq(~busy.bit_select(to, 1)),
            request.eq(Array(asked)[from_]),
            found.eq(Array(index.o.payload for index in indices)[from_]),
            self.o.valid.eq(
                busy.bit_select(from_, 1)
                & (~reads | Array(index.o.valid for index in indices)[from_])
            ),
            answer.status.eq(FetchStatus.EMPTY),
            answer.poll.eq(request.known == request.position),
            answer.qp.eq(request.qp),
            answer.position.eq(request.position),
            answer.available.eq(Mux(reads, found.available, request.position)),
            self.o.payload.queue.eq(request.queue),
            self.o.payload.cause.eq(found.cause),
        ]
        with m.If(reads & (found.status == FetchStatus.QUEUE_ERROR)):
            m.d.comb += answer.status.eq(FetchStatus.QUEUE_ERROR)
        for i, index in enumerate(indices):
            m.d.comb += index.o.ready.eq(self.o.valid & self.o.ready & (from_ == i))
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [busy.bit_select(from_, 1).eq(0), from_.eq(following(from_))]

        # Every write is a burst of one beat (avail_event), so beats may be merged. None is stored
        # here: an index is read again after its write, and that read is ordered behind the writes
        # that the write engine has taken.
        writer = Signal(bits)
        writes = Array(index.write_client.beat for index in indices)
        m.d.comb += [
            self.write_client.beat.valid.eq(writes[writer].valid),
            self.write_client.beat.payload.eq(writes[writer].payload),
            writes[writer].ready.eq(self.write_client.beat.ready),
        ]
        wanted = Cat(index.write_client.beat.valid for index in indices).any()
        with m.If(wanted & (~self.write_client.beat.valid | self.write_client.beat.ready)):
            m.d.sync += writer.eq(following(writer))
        return m
