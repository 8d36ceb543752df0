"""Receive WQEs, and send WQEs read again as the sink of a READ."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    FetchRequest,
    FetchStatus,
    QueueError,
    QueueErrorCause,
    RecvFetched,
    RecvWqe,
    WqeRead,
)
from hdl.ports.rows import QueueRow
from hdl.ports.tables import TableRead

from .lane import FetchLane
from .read import ReadShare

__all__ = ["RecvFetch"]

SLOTS = 32
#: Cycles after which a line that nobody asked for is forgotten: once to twice this many. A queue
#: comes back to the same position after 65536 WQEs, each of which takes more than four cycles.
EPOCH = 1 << 16


class _Tag(data.Struct):
    """Whose WQE a line holds, and the answer for it."""

    queue: 16
    position: 16
    head: 16
    wqe: RecvWqe


class RecvFetch(wiring.Component):
    """Fetches one WQE at a time and keeps ``recv_lines`` of them for the packets that follow.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1, VR-4.2.
    Members: as SendFetch, without ``release``. ``req.send`` tells a send WQE from a receive WQE.
    The line of an answer stays as it is until the next request. A WQE has one line it can lie in
    (queue number and position, exclusive or), so a busy queue spreads over all of them.
    Latency: 4 cycles when the WQE is at hand; else up to four host reads and 40 cycles. One request
    at a time: Receive handles one packet at a time.
    A line is forgotten by ``queue_reset``, by another WQE, or when nobody asked for it for 65536
    cycles, so that it never answers for the WQE that comes to the same position later.
    Errors: as SendFetch; nothing is kept of a WQE in error. EVENT_IDX: ``avail_event`` is written
    before EMPTY, as everywhere. Reset: no line is valid.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "req": In(stream.Signature(FetchRequest)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(16)),
                "error": Out(stream.Signature(QueueError)),
                "event_idx": In(1),
                "indirect": In(1),
                "idle": Out(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        bits = ceil_log2(config.recv_lines)
        m.submodules.lane = lane = FetchLane(config=config)
        m.submodules.share = share = ReadShare(width=config.width, clients=3)
        m.submodules.tags = tags = Ram(shape=_Tag, depth=config.recv_lines)
        m.submodules.slots = slots = Ram(shape=128, depth=SLOTS * config.recv_lines)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, lane.read_client0, share.client0)
        connect(m, lane.read_client1, share.client1)
        connect(m, lane.read_client2, share.client2)
        connect(m, lane.write_client, flipped(self.write_client))

        request = Signal(FetchRequest, reset_less=True)
        answer = Signal(RecvFetched, reset_less=True)
        cause = Signal(QueueErrorCause, reset_less=True)
        row = self.queue_read.row
        line, incoming = Signal(bits, reset_less=True), Signal(bits)
        arriving = self.req.payload
        m.d.comb += incoming.eq(
            arriving.queue[1:] ^ arriving.position ^ (arriving.queue[0] << (bits - 1))
        )

        # Which lines hold a WQE, and which were asked for in this epoch.
        valid, touched = Signal(config.recv_lines), Signal(config.recv_lines)
        age = Signal(range(EPOCH))
        epoch, keep, drop, clear, touch = (Signal() for _ in range(5))
        this_line = Signal(config.recv_lines)
        m.d.comb += [epoch.eq(age == EPOCH - 1), this_line.eq(1 << line)]
        m.d.sync += age.eq(age + 1)
        m.d.sync += [
            valid.eq(
                Mux(clear, 0, valid & Mux(epoch, touched, ~0) & ~Mux(drop, this_line, 0))
                | Mux(keep, this_line, 0)
            ),
            touched.eq(Mux(epoch, 0, touched) | Mux(keep | touch, this_line, 0)),
        ]
        hit = Signal()
        tag = tags.read0.row
        m.d.comb += [
            tags.read0.index.eq(incoming),
            hit.eq(
                (valid & this_line).any()
                & (tag.queue == request.queue)
                & (tag.position == request.position)
            ),
            self.queue_read.index.eq(arriving.queue),
            lane.event_idx.eq(self.event_idx),
            lane.indirect.eq(self.indirect),
            lane.i.payload.request.eq(request),
            lane.i.payload.row.eq(row),
            lane.i.payload.receive.eq(~request.send),
            self.rsp.payload.eq(answer),
            self.error.payload.queue.eq(request.queue),
            self.error.payload.cause.eq(cause),
        ]

        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.queue_reset.valid):
                    m.d.comb += [self.queue_reset.ready.eq(1), lane.flush.eq(1), clear.eq(1)]
                with m.Else():
                    m.d.comb += self.req.ready.eq(1)
                    m.d.sync += [request.eq(arriving), line.eq(incoming)]
                    with m.If(self.req.valid):
                        m.d.comb += [tags.read0.enable.eq(1), self.queue_read.enable.eq(1)]
                        m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += [
                    answer.status.eq(FetchStatus.OK),
                    answer.error.eq(0),
                    answer.available.eq(request.known),
                    answer.head.eq(tag.head),
                    answer.line.eq(line),
                    answer.wqe.eq(tag.wqe),
                ]
                with m.If(hit & row.enabled):
                    m.d.comb += touch.eq(1)
                    m.next = "ANSWER"
                with m.Else():
                    m.next = "START"
            with m.State("START"):
                # The line is overwritten from here on: it must not answer for its old WQE.
                m.d.comb += [lane.i.valid.eq(1), drop.eq(1)]
                with m.If(lane.i.ready):
                    m.next = "LANE"
            with m.State("LANE"):
                found = lane.o.payload
                m.d.comb += lane.o.ready.eq(1)
                m.d.sync += [
                    cause.eq(found.cause),
                    answer.status.eq(found.status),
                    answer.error.eq(found.error),
                    answer.available.eq(found.available),
                    answer.head.eq(found.head),
                    answer.wqe.num_sge.eq(found.wqe.num_sge),
                    answer.wqe.wr_id.eq(found.wqe.wr_id),
                    answer.wqe.length.eq(found.wqe.length),
                ]
                with m.If(lane.o.valid):
                    with m.If(found.status == FetchStatus.OK):
                        m.next = "KEEP"
                    with m.Elif(found.status == FetchStatus.QUEUE_ERROR):
                        m.next = "ERROR"
                    with m.Else():
                        m.next = "ANSWER"
            with m.State("KEEP"):
                m.d.comb += [tags.write.enable.eq(1), keep.eq(1)]
                m.next = "ANSWER"
            with m.State("ERROR"):
                m.d.comb += self.error.valid.eq(1)
                with m.If(self.error.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.rsp.valid.eq(1)
                with m.If(self.rsp.ready):
                    m.next = "IDLE"

        m.d.comb += [
            lane.slot.ready.eq(1),
            slots.write.enable.eq(lane.slot.valid),
            slots.write.index.eq(Cat(lane.slot.payload.slot, line)),
            slots.write.row.eq(lane.slot.payload.data),
            slots.read0.index.eq(Cat(self.slot.slot, self.slot.line[:bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
            tags.write.index.eq(line),
            tags.write.row.queue.eq(request.queue),
            tags.write.row.position.eq(request.position),
            tags.write.row.head.eq(answer.head),
            tags.write.row.wqe.eq(answer.wqe),
        ]
        return m
