"""Receive WQEs, and send WQEs read again as the sink of a READ."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.epoch import Epoch
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    FetchRequest,
    FetchStatus,
    LineUse,
    QueueError,
    ReadSink,
    RecvFetched,
    RecvWqe,
    WqeRead,
)
from hdl.ports.rows import QueueRow
from hdl.ports.tables import TableRead

from .lane import FetchAnswer, FetchLane
from .lines import HeldLines
from .read import ReadShare

__all__ = ["RecvFetch"]

SLOTS = 32
#: SGEs of a sink that is told.
SINK_SLOTS = 3


class _Tag(data.Struct):
    """Whose WQE a line holds, and the answer for it."""

    queue: 16
    position: 16
    head: 16
    wqe: RecvWqe


class RecvFetch(wiring.Component):
    """Fetches one WQE at a time and keeps ``recv_lines`` of them for the packets that follow.

    After an answer with a receive WQE the next one of that queue is fetched ahead, if it is known
    to be available; WQEs at hand are given out meanwhile.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1, VR-4.2.
    Members: as SendFetch, without ``release``. ``req.send`` tells a send WQE from a receive WQE.
    ``sink``: READs that SendFetch has read, kept like those fetched here; ``forget`` (a cycle, when
    SendFetch has taken a queue reset): no line is valid any more.
    The line of an answer stays as it is until the next request, and as long as ``line_use`` says
    that it is read. A WQE has one line it can lie in (queue number and position, exclusive or), so
    a busy queue spreads over all of them; a fetch into a line that is read waits, and a sink for it
    is left out.
    Latency: 4 cycles when the WQE is at hand; else up to four host reads and 40 cycles, behind the
    fetch ahead that may be under way. One request at a time: Receive makes one at a time.
    A line is forgotten by ``queue_reset``, by another WQE, or when nobody asked for it for 65536
    cycles, so that it never answers for the WQE that comes to the same position later.
    Errors: as SendFetch; nothing is kept of a WQE in error, and one found while fetching ahead is
    found again, and told, when the WQE is asked for. EVENT_IDX: ``avail_event`` is written
    before EMPTY, as everywhere. Reset: no line is valid.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "req": In(stream.Signature(FetchRequest)),
                "rsp": Out(stream.Signature(RecvFetched)),
                "line_use": In(LineUse()),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(16)),
                "error": Out(stream.Signature(QueueError)),
                "event_idx": In(1),
                "indirect": In(1),
                "sink": In(stream.Signature(ReadSink)),
                "forget": In(1),
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
        m.submodules.held = held = HeldLines(looks=2)
        m.submodules.tags = tags = Ram(shape=_Tag, depth=config.recv_lines)
        m.submodules.slots = slots = Ram(shape=128, depth=SLOTS * config.recv_lines)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, lane.read_client0, share.client0)
        connect(m, lane.read_client1, share.client1)
        connect(m, lane.read_client2, share.client2)
        connect(m, lane.write_client, flipped(self.write_client))

        request = Signal(FetchRequest, reset_less=True)
        answer = Signal(RecvFetched, reset_less=True)
        row = self.queue_read.row
        # The WQE behind the one of the last answer, if it is known to be there.
        following = Signal(FetchRequest, reset_less=True)
        follows = Signal()
        arriving = self.req.payload

        def line_of(asked):
            return (asked.queue[1:] ^ asked.position ^ (asked.queue[0] << (bits - 1)))[:bits]

        # Which lines hold a WQE, and which were asked for in this epoch: the others are forgotten
        # when it ends. A queue comes back to the same position after 65536 WQEs, each of which
        # takes more than four cycles.
        m.submodules.epoch = epochs = Epoch()
        valid, touched = Signal(config.recv_lines), Signal(config.recv_lines)
        keep, drop, clear, touch = (Signal() for _ in range(4))
        looked = Signal(FetchRequest)  # what the tag read before is compared with
        looked_line, fetched_line = Signal(config.recv_lines), Signal(config.recv_lines)
        fetched = Signal(FetchRequest, reset_less=True)  # what the lane is at
        sink, kept_line = self.sink.payload, Signal(config.recv_lines)
        sinking, slot_number = Signal(), Signal(range(SINK_SLOTS))
        used, used_line = Signal(), Signal(bits)  # the line of the last answer
        m.d.comb += [
            looked_line.eq(1 << line_of(looked)),
            fetched_line.eq(1 << line_of(fetched)),
            kept_line.eq(Mux(sinking, 1 << line_of(sink), fetched_line)),
        ]
        m.d.sync += [
            valid.eq(
                Mux(clear, 0, valid & Mux(epochs.ends, touched, ~0) & ~Mux(drop, fetched_line, 0))
                | Mux(keep, kept_line, 0)
            ),
            touched.eq(
                Mux(epochs.ends, 0, touched) | Mux(keep, kept_line, 0) | Mux(touch, looked_line, 0)
            ),
        ]
        hit, start, resting, free = Signal(), Signal(), Signal(), Signal()
        tag, result = tags.read0.row, Signal(FetchAnswer, reset_less=True)
        m.d.comb += [
            looked.eq(request),
            tags.read0.index.eq(line_of(looked)),
            hit.eq(
                (valid & looked_line).any()
                & (tag.queue == looked.queue)
                & (tag.position == looked.position)
            ),
            self.queue_read.index.eq(arriving.queue),
            lane.event_idx.eq(self.event_idx),
            lane.indirect.eq(self.indirect),
            lane.i.payload.request.eq(fetched),
            lane.i.payload.row.eq(row),
            lane.i.payload.receive.eq(~fetched.send),
            self.rsp.payload.eq(answer),
            self.error.payload.queue.eq(request.queue),
            self.error.payload.cause.eq(result.cause),
            held.taken.eq(self.line_use.taken),
            held.line.eq(self.line_use.line),
            held.done.eq(self.line_use.done),
            held.look0.eq(line_of(looked)),
            held.look1.eq(line_of(sink)),
            free.eq(resting & ~held.held0),
        ]
        ahead = Signal(16)
        m.d.comb += ahead.eq(answer.available - request.position - 1)

        with m.FSM(name="state"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(resting)
                with m.If(self.queue_reset.valid):
                    with m.If(resting):
                        m.d.comb += [self.queue_reset.ready.eq(1), lane.flush.eq(1), clear.eq(1)]
                        m.d.sync += follows.eq(0)
                with m.Else():
                    m.d.comb += self.req.ready.eq(1)
                    m.d.sync += request.eq(arriving)
                    with m.If(self.req.valid):
                        m.d.comb += [
                            looked.eq(arriving),
                            tags.read0.enable.eq(1),
                            self.queue_read.enable.eq(1),
                        ]
                        m.next = "LOOK"
                    with m.Elif(follows & resting):
                        m.d.comb += [looked.eq(following), tags.read0.enable.eq(1)]
                        m.next = "AHEAD"
                    with m.Elif(self.sink.valid & resting):
                        m.next = "SINK"
            with m.State("LOOK"):
                m.d.sync += [
                    answer.status.eq(FetchStatus.OK),
                    answer.error.eq(0),
                    answer.available.eq(request.known),
                    answer.head.eq(tag.head),
                    answer.line.eq(line_of(request)),
                    answer.wqe.eq(tag.wqe),
                ]
                with m.If(hit & row.enabled):
                    m.d.comb += touch.eq(1)
                    m.next = "ANSWER"
                with m.Elif(free):
                    m.d.comb += start.eq(1)
                    m.next = "LANE"
                with m.Else():
                    m.next = "WAIT"
            with m.State("WAIT"):
                # The lane fetches ahead: it may be this very WQE. Or a line is still being read.
                m.d.comb += tags.read0.enable.eq(free)
                with m.If(free):
                    m.next = "LOOK"
            with m.State("LANE"):
                m.d.sync += [
                    answer.status.eq(result.status),
                    answer.error.eq(result.error),
                    answer.available.eq(result.available),
                    answer.head.eq(result.head),
                    answer.wqe.num_sge.eq(result.wqe.num_sge),
                    answer.wqe.wr_id.eq(result.wqe.wr_id),
                    answer.wqe.length.eq(result.wqe.length),
                ]
                with m.If(resting):
                    with m.If(result.status == FetchStatus.QUEUE_ERROR):
                        m.next = "ERROR"
                    with m.Else():
                        m.next = "ANSWER"
            with m.State("ERROR"):
                m.d.comb += self.error.valid.eq(1)
                with m.If(self.error.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.rsp.valid.eq(1)
                m.d.sync += [
                    following.eq(request),
                    following.position.eq(request.position + 1),
                    following.known.eq(answer.available),
                    follows.eq(
                        (answer.status == FetchStatus.OK)
                        & ~request.send
                        & (ahead != 0)
                        & (ahead <= config.queue_size)
                    ),
                ]
                m.d.sync += [
                    used.eq(answer.status == FetchStatus.OK),
                    used_line.eq(answer.line),
                ]
                with m.If(self.rsp.ready):
                    m.next = "IDLE"
            with m.State("SINK"):
                # The line of the last answer will be read: what would lie there is left out.
                with m.If(held.held1 | (used & (line_of(sink) == used_line))):
                    m.d.comb += self.sink.ready.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.comb += sinking.eq(1)
                    m.d.sync += slot_number.eq(slot_number + 1)
                    with m.If(slot_number == SINK_SLOTS - 1):
                        m.d.comb += [
                            tags.write.enable.eq(1),
                            keep.eq(1),
                            self.sink.ready.eq(1),
                        ]
                        m.d.sync += slot_number.eq(0)
                        m.next = "IDLE"
            with m.State("AHEAD"):
                m.d.comb += [looked.eq(following), start.eq(~hit & row.enabled & ~held.held0)]
                m.d.sync += follows.eq(held.held0)
                m.next = "IDLE"

        with m.If(start):
            m.d.sync += fetched.eq(looked)
        with m.FSM(name="fetch"):
            with m.State("REST"):
                m.d.comb += resting.eq(1)
                with m.If(start):
                    m.next = "START"
            with m.State("START"):
                # The line is overwritten from here on: it must not answer for its old WQE.
                m.d.comb += [lane.i.valid.eq(1), drop.eq(1)]
                with m.If(lane.i.ready):
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += lane.o.ready.eq(1)
                m.d.sync += result.eq(lane.o.payload)
                with m.If(lane.o.valid):
                    m.next = "REST"
                    with m.If(lane.o.payload.status == FetchStatus.OK):
                        m.next = "KEEP"
            with m.State("KEEP"):
                m.d.comb += [tags.write.enable.eq(1), keep.eq(1)]
                m.next = "REST"

        m.d.comb += [
            lane.slot.ready.eq(1),
            slots.read0.index.eq(Cat(self.slot.slot, self.slot.line[:bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
        ]
        with m.If(self.forget):
            m.d.comb += clear.eq(1)
        # The lane rests while a sink is written.
        kept = tags.write.row
        with m.If(sinking):
            m.d.comb += [
                slots.write.enable.eq(1),
                slots.write.index.eq(Cat(slot_number, Const(0, 3), line_of(sink))),
                slots.write.row.eq(sink.slots.word_select(slot_number, 128)),
                tags.write.index.eq(line_of(sink)),
                kept.queue.eq(sink.queue),
                kept.position.eq(sink.position),
                kept.head.eq(sink.head),
                kept.wqe.num_sge.eq(sink.num_sge),
                kept.wqe.wr_id.eq(sink.wr_id),
                kept.wqe.length.eq(sink.length),
            ]
        with m.Else():
            m.d.comb += [
                slots.write.enable.eq(lane.slot.valid),
                slots.write.index.eq(Cat(lane.slot.payload.slot, line_of(fetched))),
                slots.write.row.eq(lane.slot.payload.data),
                tags.write.index.eq(line_of(fetched)),
                kept.queue.eq(fetched.queue),
                kept.position.eq(fetched.position),
                kept.head.eq(result.head),
                kept.wqe.num_sge.eq(result.wqe.num_sge),
                kept.wqe.wr_id.eq(result.wqe.wr_id),
                kept.wqe.length.eq(result.wqe.length),
            ]
        return m
