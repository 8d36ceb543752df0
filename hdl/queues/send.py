"""Send WQEs: from a position of a send queue to a decoded WQE in its line."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, WriteClient
from hdl.ports.jobs import (
    FetchRequest,
    FetchStatus,
    QueueError,
    SendFetched,
    WqeRead,
)
from hdl.ports.rows import QueueRow
from hdl.ports.tables import TableRead

from .decode import Slot
from .lane import FetchAnswer, FetchJob, FetchLane
from .lines import FreeLines
from .read import ReadShare

__all__ = ["SendFetch"]

SLOTS = 32


class SendFetch(wiring.Component):
    """Fetches send WQEs; up to ``lanes`` at a time, answered in request order.

    Spec: Virtio 1.2, 2.7; virtio-rdma VR-4.1 to VR-4.6, VR-7.5.
    Members: ``req``/``rsp``; ``slot``, ``slot_enable``, ``slot_data`` read port of the lines
    (latency 1 cycle, data stays until the next enabled read); ``release`` lines that are done with
    (status OK gave them out; others keep none); ``queue_read`` the queues' rows; ``error`` broken
    rings; ``queue_reset`` is taken when nothing is under way, and forgets what was read ahead
    (while it waits no request is taken); ``idle``; ``event_idx``, ``indirect``: negotiated
    features. Each request gets a free line and the next lane in turn (3 cycles), which looks up
    ring, descriptors and bytes (FetchLane).
    Latency: two to four host reads, see FetchLane. Throughput: ``lanes`` WQEs in that time.
    Waits for a free line, also when the queue turns out to be empty.
    Errors: QUEUE_ERROR and a row in ``error`` for a broken ring; WQE_ERROR with a WC status for an
    element that is no WQE. A queue that is not enabled is EMPTY.
    Reset: all lines free; contents of lines kept.
    """

    def __init__(self, *, config: NicConfig, lanes: int = 8):
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
                "release": In(stream.Signature(8)),
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
        config, count = self._config, self._lanes
        line_bits, lane_bits = ceil_log2(config.send_lines), max(1, ceil_log2(count))
        m.submodules.lines = lines = FreeLines(lines=config.send_lines)
        m.submodules.share = share = ReadShare(width=config.width, clients=3 * count)
        m.submodules.slots = slots = Ram(shape=128, depth=SLOTS * config.send_lines)
        connect(m, share.read_client, flipped(self.read_client))
        flush = Signal()
        lanes = []
        for i in range(count):
            m.submodules[f"lane{i}"] = lane = FetchLane(config=config)
            for k in range(3):
                connect(m, getattr(lane, f"read_client{k}"), getattr(share, f"client{3 * i + k}"))
            m.d.comb += [
                lane.indirect.eq(self.indirect),
                lane.event_idx.eq(self.event_idx),
                lane.flush.eq(flush),
            ]
            lanes.append(lane)

        # Every write is a burst of one beat (avail_event), so beats may be merged. None is stored
        # here: a lane reads again after its write, and that read is ordered behind the writes that
        # the write engine has taken.
        writer = Signal(lane_bits)
        writes = Array(lane.write_client.beat for lane in lanes)
        m.d.comb += [
            self.write_client.beat.valid.eq(writes[writer].valid),
            self.write_client.beat.payload.eq(writes[writer].payload),
            writes[writer].ready.eq(self.write_client.beat.ready),
        ]
        with m.If(~self.write_client.beat.valid | self.write_client.beat.ready):
            m.d.sync += writer.eq(Mux(writer == count - 1, 0, writer + 1))

        under_way = Signal(range(32))  # requests whose answer has not been taken
        taken, answered = Signal(), Signal()
        m.d.sync += under_way.eq(under_way + taken - answered)
        m.d.comb += self.idle.eq(under_way == 0)

        # A line and a lane for each request.
        job = Signal(FetchJob)
        request = Signal(FetchRequest, reset_less=True)
        to_lane, from_lane = Signal(lane_bits), Signal(lane_bits)
        lane_requests = [
            Signal(FetchRequest, reset_less=True, name=f"request{i}") for i in range(count)
        ]
        lane_lines = [Signal(line_bits, reset_less=True, name=f"line{i}") for i in range(count)]
        m.d.comb += [
            self.queue_read.index.eq(self.req.payload.queue),
            job.request.eq(request),
            job.row.eq(self.queue_read.row),
        ]
        for lane in lanes:
            m.d.comb += lane.i.payload.eq(job)
        with m.FSM(name="front"):
            with m.State("IDLE"):
                with m.If(self.queue_reset.valid):
                    with m.If(under_way == 0):
                        m.d.comb += [self.queue_reset.ready.eq(1), flush.eq(1)]
                with m.Else():
                    m.d.comb += self.req.ready.eq(1)
                    m.d.sync += request.eq(self.req.payload)
                    with m.If(self.req.valid):
                        m.d.comb += [taken.eq(1), self.queue_read.enable.eq(1)]
                        m.next = "START"
            with m.State("START"):
                with m.Switch(to_lane):
                    for i, lane in enumerate(lanes):
                        with m.Case(i):
                            m.d.comb += [
                                lane.i.valid.eq(lines.o.valid),
                                lines.o.ready.eq(lane.i.ready),
                            ]
                            with m.If(lane.i.ready & lines.o.valid):
                                m.d.sync += [
                                    lane_requests[i].eq(request),
                                    lane_lines[i].eq(lines.o.payload),
                                ]
                with m.If(lines.o.valid & lines.o.ready):
                    m.d.sync += to_lane.eq(Mux(to_lane == count - 1, 0, to_lane + 1))
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

        # Answers, in the order in which the lanes were given their jobs.
        found, found_valid = Signal(FetchAnswer), Signal()
        asked, line = Signal(FetchRequest), Signal(line_bits)
        answer, answer_valid = Signal(SendFetched, reset_less=True), Signal()
        broken, broken_valid = Signal(QueueError, reset_less=True), Signal()
        collect = Signal()
        m.d.comb += [
            found_valid.eq(Array(lane.o.valid for lane in lanes)[from_lane]),
            found.eq(Array(lane.o.payload for lane in lanes)[from_lane]),
            asked.eq(Array(lane_requests)[from_lane]),
            line.eq(Array(lane_lines)[from_lane]),
            collect.eq(found_valid & ~answer_valid & ~broken_valid),
            self.rsp.valid.eq(answer_valid),
            self.rsp.payload.eq(answer),
            self.error.valid.eq(broken_valid),
            self.error.payload.eq(broken),
            answered.eq(self.rsp.valid & self.rsp.ready),
        ]
        with m.If(answered):
            m.d.sync += answer_valid.eq(0)
        with m.If(self.error.ready):
            m.d.sync += broken_valid.eq(0)
        with m.If(collect):
            m.d.sync += [
                answer_valid.eq(1),
                answer.qp.eq(asked.qp),
                answer.position.eq(asked.position),
                answer.line.eq(line),
                broken_valid.eq(found.status == FetchStatus.QUEUE_ERROR),
                broken.queue.eq(asked.queue),
                broken.cause.eq(found.cause),
                from_lane.eq(Mux(from_lane == count - 1, 0, from_lane + 1)),
            ]
            m.d.sync += [
                getattr(answer, name).eq(getattr(found, name))
                for name in ("status", "error", "available", "head", "wqe")
            ]
            with m.Switch(from_lane):
                for i, lane in enumerate(lanes):
                    with m.Case(i):
                        m.d.comb += lane.o.ready.eq(1)

        # A line whose fetch failed goes back at once; released ones wait a cycle for it.
        unused = Signal()
        m.d.comb += [
            unused.eq(collect & (found.status != FetchStatus.OK)),
            self.release.ready.eq(lines.i.ready & ~unused),
            lines.i.valid.eq(unused | self.release.valid),
            lines.i.payload.eq(Mux(unused, line, self.release.payload)),
        ]
        return m
