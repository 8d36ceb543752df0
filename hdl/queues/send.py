"""Send WQEs: from a position of a send queue to a decoded WQE in its line."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    FetchRequest,
    FetchStatus,
    QueueError,
    QueueErrorCause,
    SendFetched,
    WqeRead,
)
from hdl.ports.rows import QueueRow
from hdl.ports.tables import TableRead

from .decode import Slot
from .lane import WqeJob, WqeLane
from .lines import FreeLines
from .read import ReadShare
from .ring import AvailRing
from .types import RingResult

__all__ = ["SendFetch"]

SLOTS = 32


class _Ticket(data.Struct):
    """A request behind the front: with ``fetch`` a lane works for it, else the answer is known."""

    fetch: 1
    qp: 14
    queue: 16
    position: 16
    ring: RingResult
    line: 8


class SendFetch(wiring.Component):
    """Fetches send WQEs; up to ``lanes`` at a time, answered in request order.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1 to VR-4.6, VR-7.5.
    Members: ``req``/``rsp``; ``slot``, ``slot_enable``, ``slot_data`` read port of the lines (latency 1
    cycle, data stays until the next enabled read); ``release`` lines that are done with (status OK
    gave them out; others keep none); ``queue_read`` the queues' rows; ``error`` broken rings;
    ``queue_reset`` is taken when nothing is under way, and forgets what was read ahead (while it waits
    no request is taken); ``event_idx``, ``indirect``: negotiated features.
    Front: row (2 cycles), ring position to head (AvailRing), a free line; one request at a time,
    7 cycles when the entry is at hand. Then a lane: descriptors and bytes (WqeLane).
    Throughput: ``lanes`` WQEs per two host reads. Waits for a free line.
    Errors: QUEUE_ERROR and a row in ``error`` for a broken ring; WQE_ERROR with a WC status for an
    element that is no WQE. A queue that is not enabled is EMPTY.
    Reset: all lines free; contents of lines kept.
    """

    def __init__(self, *, config: NicConfig, lanes: int = 4):
        if not 1 <= lanes <= 16:
            raise ValueError(f"Lanes must be 1 to 16, not {lanes!r}")
        self._config, self._lanes = config, lanes
        super().__init__(
            {
                "req": In(stream.Signature(FetchRequest)),
                "rsp": Out(stream.Signature(SendFetched)),
                "slot": In(WqeRead),
                "slot_enable": In(1),
                "slot_data": Out(128),
                "release": In(stream.Signature(data.StructLayout({"line": 8}))),
                "queue_read": Out(TableRead(16, QueueRow)),
                "queue_reset": In(stream.Signature(16)),
                "error": Out(stream.Signature(QueueError)),
                "event_idx": In(1),
                "indirect": In(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, count = self._config, self._lanes
        line_bits, lane_bits = ceil_log2(config.send_lines), max(1, ceil_log2(count))
        m.submodules.ring = ring = AvailRing(config=config)
        m.submodules.lines = lines = FreeLines(lines=config.send_lines)
        m.submodules.share = share = ReadShare(width=config.width, clients=1 + 2 * count)
        m.submodules.tickets = tickets = StreamFifo(shape=_Ticket, depth=16)
        m.submodules.slots = slots = Ram(shape=128, depth=SLOTS * config.send_lines)
        connect(m, share.read_client, flipped(self.read_client))
        connect(m, ring.read_client, share.client0)
        connect(m, ring.write_client, flipped(self.write_client))
        lanes = []
        for i in range(count):
            m.submodules[f"lane{i}"] = lane = WqeLane(config=config)
            connect(m, lane.read_client0, getattr(share, f"client{1 + 2 * i}"))
            connect(m, lane.read_client1, getattr(share, f"client{2 + 2 * i}"))
            m.d.comb += lane.indirect.eq(self.indirect)
            lanes.append(lane)
        m.d.comb += ring.event_idx.eq(self.event_idx)

        under_way = Signal(range(32))  # requests whose answer has not been taken
        taken, answered = Signal(), Signal()
        m.d.sync += under_way.eq(under_way + taken - answered)

        # Front.
        request = Signal(FetchRequest, reset_less=True)
        result = Signal(RingResult, reset_less=True)
        row = self.queue_read.row
        to_lane, from_lane = Signal(lane_bits), Signal(lane_bits)
        lane_ready = Signal()
        lane_job = Signal(WqeJob)
        lane_lines = [Signal(line_bits, reset_less=True, name=f"line{i}") for i in range(count)]
        m.d.comb += [
            self.queue_read.index.eq(self.req.payload.queue),
            ring.i.payload.function.eq(request.function),
            ring.i.payload.queue.eq(request.queue),
            ring.i.payload.row.eq(row),
            ring.i.payload.position.eq(request.position),
            ring.i.payload.known.eq(request.known),
            lane_job.function.eq(request.function),
            lane_job.desc.eq(row.desc),
            lane_job.size_log2.eq(row.size_log2),
            lane_job.head.eq(result.head),
            lane_ready.eq(Array(lane.i.ready for lane in lanes)[to_lane]),
            tickets.i.payload.qp.eq(request.qp),
            tickets.i.payload.queue.eq(request.queue),
            tickets.i.payload.position.eq(request.position),
            tickets.i.payload.ring.eq(result),
            tickets.i.payload.line.eq(lines.o.payload),
        ]
        for i, lane in enumerate(lanes):
            m.d.comb += lane.i.payload.eq(lane_job)
        with m.FSM(name="front"):
            with m.State("IDLE"):
                with m.If(self.queue_reset.valid):
                    with m.If(under_way == 0):
                        m.d.comb += [self.queue_reset.ready.eq(1), ring.flush.eq(1)]
                with m.Else():
                    m.d.comb += self.req.ready.eq(1)
                    m.d.sync += request.eq(self.req.payload)
                    with m.If(self.req.valid):
                        m.d.comb += [taken.eq(1), self.queue_read.enable.eq(1)]
                        m.next = "RING"
            with m.State("RING"):
                m.d.comb += ring.i.valid.eq(1)
                with m.If(ring.i.ready):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += ring.o.ready.eq(1)
                m.d.sync += result.eq(ring.o.payload)
                with m.If(ring.o.valid):
                    m.next = "SEND"
            with m.State("SEND"):
                with m.If(result.status != FetchStatus.OK):
                    m.d.comb += tickets.i.valid.eq(1)
                    with m.If(tickets.i.ready):
                        m.next = "IDLE"
                with m.Elif(lines.o.valid & lane_ready & tickets.i.ready):
                    m.d.comb += [
                        tickets.i.valid.eq(1),
                        tickets.i.payload.fetch.eq(1),
                        lines.o.ready.eq(1),
                    ]
                    m.d.sync += to_lane.eq(Mux(to_lane == count - 1, 0, to_lane + 1))
                    with m.Switch(to_lane):
                        for i, lane in enumerate(lanes):
                            with m.Case(i):
                                m.d.comb += lane.i.valid.eq(1)
                                m.d.sync += lane_lines[i].eq(lines.o.payload)
                    m.next = "IDLE"

        # Slots into the lines: one lane a cycle, in turn.
        turn = Signal(lane_bits)
        m.d.sync += turn.eq(Mux(turn == count - 1, 0, turn + 1))
        slot = Signal(Slot)
        with m.Switch(turn):
            for i, lane in enumerate(lanes):
                with m.Case(i):
                    m.d.comb += [
                        lane.slot.ready.eq(1),
                        slot.eq(lane.slot.payload),
                        slots.write.enable.eq(lane.slot.valid),
                        slots.write.index.eq(Cat(slot.slot, lane_lines[i])),
                    ]
        m.d.comb += [
            slots.write.row.eq(slot.data),
            slots.read0.index.eq(Cat(self.slot.slot, self.slot.line[:line_bits])),
            slots.read0.enable.eq(self.slot_enable),
            self.slot_data.eq(slots.read0.row),
        ]

        # Answers, in order.
        ticket = Signal(_Ticket)
        answer, answer_valid = Signal(SendFetched, reset_less=True), Signal()
        broken, broken_valid = Signal(QueueError, reset_less=True), Signal()
        lane_valid, lane_answer = Signal(), Signal(lanes[0].o.payload.shape())
        cause = Signal(QueueErrorCause)
        free = Signal()  # the answer's register can take another, the error's too
        collect = Signal()
        status = Signal(FetchStatus)
        m.d.comb += [
            ticket.eq(tickets.o.payload),
            lane_valid.eq(Array(lane.o.valid for lane in lanes)[from_lane]),
            lane_answer.eq(Array(lane.o.payload for lane in lanes)[from_lane]),
            free.eq(~answer_valid & ~broken_valid),
            collect.eq(tickets.o.valid & free & (~ticket.fetch | lane_valid)),
            tickets.o.ready.eq(collect),
            self.rsp.valid.eq(answer_valid),
            self.rsp.payload.eq(answer),
            self.error.valid.eq(broken_valid),
            self.error.payload.eq(broken),
            answered.eq(self.rsp.valid & self.rsp.ready),
            cause.eq(Mux(ticket.fetch, lane_answer.cause, ticket.ring.cause)),
        ]
        with m.If(cause != QueueErrorCause.NONE):
            m.d.comb += status.eq(FetchStatus.QUEUE_ERROR)
        with m.Elif(ticket.fetch & (lane_answer.result.error != 0)):
            m.d.comb += status.eq(FetchStatus.WQE_ERROR)
        with m.Else():
            m.d.comb += status.eq(ticket.ring.status)
        with m.If(answered):
            m.d.sync += answer_valid.eq(0)
        with m.If(self.error.ready):
            m.d.sync += broken_valid.eq(0)
        with m.If(collect):
            m.d.sync += [
                answer_valid.eq(1),
                answer.status.eq(status),
                answer.error.eq(Mux(ticket.fetch, lane_answer.result.error, 0)),
                answer.qp.eq(ticket.qp),
                answer.position.eq(ticket.position),
                answer.available.eq(ticket.ring.available),
                answer.head.eq(ticket.ring.head),
                answer.line.eq(ticket.line),
                answer.wqe.eq(lane_answer.result.wqe),
                broken_valid.eq(cause != QueueErrorCause.NONE),
                broken.queue.eq(ticket.queue),
                broken.cause.eq(cause),
            ]
            with m.If(ticket.fetch):
                m.d.sync += from_lane.eq(Mux(from_lane == count - 1, 0, from_lane + 1))
                with m.Switch(from_lane):
                    for i, lane in enumerate(lanes):
                        with m.Case(i):
                            m.d.comb += lane.o.ready.eq(1)

        # A line whose fetch failed goes back at once; released ones wait a cycle for it.
        unused = Signal()
        m.d.comb += [
            unused.eq(collect & ticket.fetch & (status != FetchStatus.OK)),
            self.release.ready.eq(lines.i.ready & ~unused),
            lines.i.valid.eq(unused | self.release.valid),
            lines.i.payload.eq(Mux(unused, ticket.line, self.release.payload.line)),
        ]
        return m
